// What the files of most families call the weights.
#include <array>

#include "base/check.h"
#include "models/family.h"

namespace tutti {
namespace {

struct Names {
  std::string_view own;
  std::string_view hf;
  std::string_view gguf;
};

constexpr std::array kModel = {
    Names{"embed", "model.embed_tokens", "token_embd"},
    Names{"norm", "model.norm", "output_norm"},
    Names{"head", "lm_head", "output"},
};

// Inside a layer: after "layers.N.", "model.layers.N." and "blk.N.".
constexpr std::array kLayer = {
    Names{"input_norm", "input_layernorm", "attn_norm"},
    Names{"attention.q", "self_attn.q_proj", "attn_q"},
    Names{"attention.k", "self_attn.k_proj", "attn_k"},
    Names{"attention.v", "self_attn.v_proj", "attn_v"},
    Names{"attention.o", "self_attn.o_proj", "attn_output"},
    Names{"attention.q_norm", "self_attn.q_norm", "attn_q_norm"},
    Names{"attention.k_norm", "self_attn.k_norm", "attn_k_norm"},
    Names{"post_norm", "post_attention_layernorm", "ffn_norm"},
    Names{"mlp.gate", "mlp.gate_proj", "ffn_gate"},
    Names{"mlp.up", "mlp.up_proj", "ffn_up"},
    Names{"mlp.down", "mlp.down_proj", "ffn_down"},
};

constexpr std::string_view kLayers = "layers.";

std::string translate(std::string_view parameter, std::string_view Names::*to, std::string_view layer_prefix) {
  const size_t dot = parameter.rfind('.');
  CHECK(dot != std::string_view::npos);
  const std::string_view kind = parameter.substr(dot);  // ".weight" or ".bias"
  std::string_view stem = parameter.substr(0, dot);
  if (!stem.starts_with(kLayers)) {
    for (const Names& names : kModel) {
      if (names.own == stem) return std::string(names.*to) + std::string(kind);
    }
  } else {
    stem.remove_prefix(kLayers.size());
    const size_t end = stem.find('.');
    const std::string_view number = stem.substr(0, end);
    stem.remove_prefix(end + 1);
    for (const Names& names : kLayer) {
      if (names.own == stem) {
        return std::string(layer_prefix) + std::string(number) + "." + std::string(names.*to) + std::string(kind);
      }
    }
  }
  TUTTI_CHECK_FAILED("no file name for parameter " + std::string(parameter));
}

}  // namespace

std::string common_hf_name(std::string_view parameter) { return translate(parameter, &Names::hf, "model.layers."); }
std::string common_gguf_name(std::string_view parameter) { return translate(parameter, &Names::gguf, "blk."); }

}  // namespace tutti
