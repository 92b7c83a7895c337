#include "base/error.h"
#include "server/field_reader.h"
#include "server/server_config.h"

namespace tutti {

GenerationDefaults GenerationDefaults::from_json(const Json& config, const std::string& source) {
  if (!config.is_object()) throw ConfigError(source + " must hold a JSON object");
  const FieldReader fields(config);
  GenerationDefaults out;
  try {
    out.temperature = fields.number("temperature", 0.0, 1e6);
    out.top_p = fields.number("top_p", 1e-6, 1.0);
    if (const auto top_k = fields.integer("top_k", -1, 1 << 30)) out.top_k = static_cast<int32_t>(*top_k);
    out.min_p = fields.number("min_p", 0.0, 1.0);
    out.repetition_penalty = fields.number("repetition_penalty", 1e-6, 1e6);
    if (const auto most = fields.integer("max_new_tokens", 1, 1 << 30))
      out.max_tokens = static_cast<int32_t>(*most);
  } catch (const InvalidRequest& e) {
    throw ConfigError(source + ": " + e.what());
  }
  return out;
}

}  // namespace tutti
