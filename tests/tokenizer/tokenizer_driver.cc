// Encodes or decodes a batch for compare.py, which knows what the answers should be, or measures the speed of both.
//
//   tokenizer_driver (--folder DIR | --gguf METADATA.json) encode|decode|stream|speed [--no-special] [--no-parse]
//
// Standard input and output are frames: a 32-bit count, then as many bytes (text) or 32-bit ids. "stream" decodes with
// the incremental detokenizer. "speed" reads texts and prints one JSON object.
#include <cstdint>
#include <cstring>
#include <ctime>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace tutti {
namespace {

struct Arguments {
  std::string folder, gguf, mode;
  EncodeOptions options;
};

Arguments parse(int argc, char** argv) {
  Arguments out;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--folder" && i + 1 < argc) {
      out.folder = argv[++i];
    } else if (arg == "--gguf" && i + 1 < argc) {
      out.gguf = argv[++i];
    } else if (arg == "--no-special") {
      out.options.add_special_tokens = false;
    } else if (arg == "--no-parse") {
      out.options.parse_special_tokens = false;
    } else {
      out.mode = arg;
    }
  }
  if (out.folder.empty() == out.gguf.empty()) throw ConfigError("give either --folder DIR or --gguf METADATA.json");
  return out;
}

template <typename T>
std::vector<std::vector<T>> read_frames(const std::string& input) {
  std::vector<std::vector<T>> out;
  for (size_t pos = 0; pos < input.size();) {
    uint32_t count;
    if (input.size() - pos < sizeof count) throw IoError("standard input ends inside a frame");
    std::memcpy(&count, input.data() + pos, sizeof count);
    pos += sizeof count;
    if ((input.size() - pos) / sizeof(T) < count) throw IoError("standard input ends inside a frame");
    out.emplace_back(count);
    std::memcpy(out.back().data(), input.data() + pos, count * sizeof(T));
    pos += count * sizeof(T);
  }
  return out;
}

template <typename Range>
void write_frame(const Range& items) {
  const auto count = static_cast<uint32_t>(items.size());
  std::cout.write(reinterpret_cast<const char*>(&count), sizeof count);
  std::cout.write(reinterpret_cast<const char*>(items.data()), count * sizeof(*items.data()));
}

std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer, {}, {});
  std::string out;
  for (const TokenId id : ids) out += detokenizer.push(id);
  return out + detokenizer.finish();
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Passes over the texts until half a second of processor time has gone, five times; the best round counts.
template <typename Pass>
double tokens_per_second(Pass pass) {
  double best = 0;
  for (int round = 0; round < 5; ++round) {
    const double start = processor_seconds();
    double seconds = 0;
    size_t tokens = 0;
    while (seconds < 0.5) {
      tokens += pass();
      seconds = processor_seconds() - start;
    }
    best = std::max(best, static_cast<double>(tokens) / seconds);
  }
  return best;
}

void measure(const Tokenizer& tokenizer, const std::vector<std::vector<char>>& frames, const EncodeOptions& options) {
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> ids;
  for (const std::vector<char>& frame : frames) texts.emplace_back(frame.begin(), frame.end());
  for (const std::string& text : texts) ids.push_back(tokenizer.encode(text, options));
  Json out;
  out["encode"] = tokens_per_second([&] {
    size_t tokens = 0;
    for (const std::string& text : texts) tokens += tokenizer.encode(text, options).size();
    return tokens;
  });
  size_t bytes = 0;
  out["decode"] = tokens_per_second([&] {
    size_t tokens = 0;
    for (const std::vector<TokenId>& list : ids) {
      bytes += tokenizer.decode(list).size();
      tokens += list.size();
    }
    return tokens;
  });
  out["stream"] = tokens_per_second([&] {
    size_t tokens = 0;
    for (const std::vector<TokenId>& list : ids) {
      bytes += stream(tokenizer, list).size();
      tokens += list.size();
    }
    return tokens;
  });
  out["bytes"] = bytes;  // keeps the results alive
  std::cout << dump_json(out) << "\n";
}

void run(const Arguments& arguments) {
  const std::unique_ptr<Tokenizer> tokenizer = arguments.folder.empty()
                                                   ? Tokenizer::from_gguf(read_json_file(arguments.gguf))
                                                   : Tokenizer::from_folder(arguments.folder);
  const std::string input((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
  if (arguments.mode == "encode") {
    for (const auto& text : read_frames<char>(input)) {
      write_frame(tokenizer->encode({text.data(), text.size()}, arguments.options));
    }
  } else if (arguments.mode == "decode") {
    for (const auto& ids : read_frames<TokenId>(input)) write_frame(tokenizer->decode(ids, true));
  } else if (arguments.mode == "stream") {
    for (const auto& ids : read_frames<TokenId>(input)) write_frame(stream(*tokenizer, ids));
  } else if (arguments.mode == "speed") {
    measure(*tokenizer, read_frames<char>(input), arguments.options);
  } else {
    throw ConfigError("unknown mode \"" + arguments.mode + "\": expected encode, decode, stream or speed");
  }
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  try {
    tutti::run(tutti::parse(argc, argv));
  } catch (const tutti::Error& e) {
    std::cerr << "tokenizer_driver: " << e.what() << "\n";
    return static_cast<int>(e.exit_code());
  }
  return 0;
}
