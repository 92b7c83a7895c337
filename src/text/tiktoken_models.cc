#include "text/tiktoken_models.h"

#include "base/error.h"
#include "text/gguf_pre_tokenizers.h"

namespace tutti {
namespace {

using Names = std::vector<std::string>;

void reserve(Names& names, const std::string& kind, int first, int count) {
  for (int i = first; i < first + count; ++i) {
    names.push_back("<|" + kind + "reserved_special_token_" + std::to_string(i) + "|>");
  }
}

std::vector<std::pair<std::string, TokenId>> numbered(const Names& names, TokenId first) {
  std::vector<std::pair<std::string, TokenId>> out;
  for (const std::string& name : names) out.emplace_back(name, first++);
  return out;
}

std::string regex_of(const std::string& gguf_name) { return gguf_pre_tokenizer_regexes(gguf_name).back(); }

TiktokenModel llama3() {
  Names names = {"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
                 "<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
                 "<|eot_id|>", "<|python_tag|>", "<|image|>"};
  reserve(names, "", 2, 256 - static_cast<int>(names.size()));
  return {regex_of("llama-bpe"), numbered(names, 128000), 128000, 128001, true, false};
}

TiktokenModel llama4() {
  Names names = {"<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>",
                 "<|header_start|>", "<|header_end|>", "<|eom|>", "<|eot|>", "<|step|>"};
  const auto add = [&](const Names& more) { names.insert(names.end(), more.begin(), more.end()); };
  reserve(names, "text_post_train_", 0, 6);
  add({"<|python_start|>", "<|python_end|>", "<|finetune_right_pad|>"});
  reserve(names, "text_post_train_", 8, 61);
  add({"<|image_start|>", "<|image_end|>"});
  reserve(names, "vision_", 0, 2);
  add({"<|tile_x_separator|>", "<|tile_y_separator|>"});
  reserve(names, "vision_", 2, 4);
  add({"<|image|>"});
  reserve(names, "vision_", 6, 1);
  add({"<|patch|>"});
  reserve(names, "vision_", 7, 1041);
  reserve(names, "reasoning_", 0, 8);
  add({"<|reasoning_thinking_start|>", "<|reasoning_thinking_end|>"});
  reserve(names, "", 0, 2048 - static_cast<int>(names.size()));
  return {regex_of("llama4"), numbered(names, 200000), 200000, 200001, true, false};
}

TiktokenModel qwen() {
  Names names = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (int i = 0; i < 205; ++i) names.push_back("<|extra_" + std::to_string(i) + "|>");
  return {regex_of("qwen2"), numbered(names, 151643), std::nullopt, 151643, false, true};
}

TiktokenModel cl100k() {
  return {regex_of("llama-bpe"),
          {{"<|endoftext|>", 100257},
           {"<|fim_prefix|>", 100258},
           {"<|fim_middle|>", 100259},
           {"<|fim_suffix|>", 100260},
           {"<|endofprompt|>", 100276}},
          std::nullopt, 100257, false, false};
}

// gpt-oss: o200k with the tokens of the harmony format.
TiktokenModel o200k_harmony() {
  Names names = {"<|startoftext|>", "<|endoftext|>", "", "", "<|return|>", "<|constrain|>", "", "<|channel|>",
                 "<|start|>", "<|end|>", "<|message|>", "", "", "", "<|call|>", "", "", "", "", "", "<|endofprompt|>"};
  constexpr TokenId kFirst = 199998, kEnd = 201088;
  names.resize(kEnd - kFirst);
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) names[i] = "<|reserved_" + std::to_string(kFirst + static_cast<TokenId>(i)) + "|>";
  }
  return {regex_of("gpt-4o"), numbered(names, kFirst), 199998, 200002, false, false};
}

}  // namespace

TiktokenModel tiktoken_model(size_t num_ranks, const std::string& source) {
  switch (num_ranks) {
    case 128000: return llama3();
    case 200000: return llama4();
    case 151643: return qwen();
    case 100256: return cl100k();
    case 199998: return o200k_harmony();
    default:
      throw ConfigError(source + ": a rank file of " + std::to_string(num_ranks) +
                        " tokens belongs to no known model; known: 128000 (Llama 3), 200000 (Llama 4), 151643 (Qwen), "
                        "100256 (cl100k), 199998 (o200k); a tokenizer.json beside it works for every model");
  }
}

std::vector<std::string> tekken_special_tokens(TokenId count) {
  Names names = {"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
                 "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "<pad>", "[PREFIX]", "[MIDDLE]", "[SUFFIX]"};
  names.resize(count);
  for (TokenId i = 14; i < count; ++i) names[i] = "<SPECIAL_" + std::to_string(i) + ">";
  return names;
}

}  // namespace tutti
