#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "text/unicode.h"

namespace tutti {
namespace {

constexpr uint32_t kMatchLimit = 1'000'000;  // backtracking steps from one start of a match
constexpr size_t kWindow = 256;              // starts that are tried before the clock is looked at
constexpr double kSecondsBase = 2.0;         // processor time for one text, and more for each byte of it
constexpr double kSecondsPerByte = 2e-6;
constexpr size_t kMaxPattern = 64 * 1024;

// PCRE2's own \s knows U+180E as a space and its \w no marks; tokenizer regexes mean White_Space and word characters.
constexpr std::string_view kSpaces =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWordClass = R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc})";

double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string message_of(int error) {
  char message[256] = "";
  pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
  return message;
}

// Spells out \s \S \d \w and \W, inside and outside classes.
std::string translate(const std::string& pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      const std::string_view set = next == 's' || next == 'S' ? kSpaces
                                   : next == 'w' || next == 'W' ? kWordClass
                                   : next == 'd' || next == 'D' ? std::string_view(R"(\p{Nd})")
                                                                : std::string_view();
      if (set.empty()) {
        out += {c, next};
      } else if (next < 'a' && in_class) {
        throw ConfigError("regular expression '" + pattern + "': \\" + std::string(1, next) +
                          " inside a character class is not supported; write the class out");
      } else if (in_class) {
        out += set;
      } else {
        out += (next < 'a' ? "[^" : "[") + std::string(set) + "]";
      }
      continue;
    }
    if (in_class && c == '[' && pattern.compare(i, 2, "[:") != 0) out += '\\';
    if (c == '[' && !in_class) {
      in_class = true;
      // A "]" right after the opening is a member.
      if (pattern.compare(i, 3, "[^]") == 0) {
        out += "[^\\]";
        i += 2;
        continue;
      }
    } else if (c == ']') {
      in_class = false;
    }
    out += c;
  }
  return out;
}

}  // namespace

struct Regex::Impl {
  std::string pattern;
  pcre2_code* code = nullptr;

  ~Impl() { pcre2_code_free(code); }
  [[noreturn]] void give_up(const std::string& reason) const {
    throw InvalidRequest("the tokenizer's regular expression '" + pattern + "' gave up on this text: " + reason +
                         "; send a shorter or more ordinary text");
  }
};

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;

Regex::Regex(const std::string& pattern) : impl_(std::make_unique<Impl>()) {
  if (pattern.size() > kMaxPattern) {
    throw ConfigError("regular expression of " + std::to_string(pattern.size()) + " bytes: at most " +
                      std::to_string(kMaxPattern) + " are accepted");
  }
  impl_->pattern = pattern;
  const std::string translated = translate(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;
  impl_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), kOptions, &error,
                              &offset, nullptr);
  if (impl_->code == nullptr) {
    throw ConfigError("regular expression '" + pattern + "' does not compile at offset " + std::to_string(offset) +
                      ": " + message_of(error));
  }
  // Without a JIT on this machine pcre2_match() interprets the code.
  pcre2_jit_compile(impl_->code, PCRE2_JIT_COMPLETE);
}

// The match context belongs to one call: it holds the last start that may be tried.
void Regex::for_each(std::string_view text, const std::function<void(size_t, size_t)>& match) const {
  const auto free_data = [](pcre2_match_data* p) { pcre2_match_data_free(p); };
  const auto free_context = [](pcre2_match_context* p) { pcre2_match_context_free(p); };
  const std::unique_ptr<pcre2_match_data, decltype(free_data)> data(
      pcre2_match_data_create_from_pattern(impl_->code, nullptr), free_data);
  const std::unique_ptr<pcre2_match_context, decltype(free_context)> context(pcre2_match_context_create(nullptr),
                                                                             free_context);
  if (!data || !context) throw std::bad_alloc();
  pcre2_set_match_limit(context.get(), kMatchLimit);
  const double limit = kSecondsBase + kSecondsPerByte * static_cast<double>(text.size());
  const double start = thread_seconds();
  size_t checked = 0;
  for (size_t pos = 0; pos < text.size();) {
    if (pos - checked >= kWindow) {
      checked = pos;
      if (thread_seconds() - start > limit) impl_->give_up("it took " + std::to_string(limit) + " seconds");
    }
    pcre2_set_offset_limit(context.get(), pos + kWindow);
    const int rc = pcre2_match(impl_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), pos,
                               PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (rc == PCRE2_ERROR_NOMATCH) {
      pos = std::min(pos + kWindow + 1, text.size());
      while (pos < text.size() && (static_cast<uint8_t>(text[pos]) & 0xc0) == 0x80) ++pos;
      continue;
    }
    if (rc < 0) impl_->give_up(message_of(rc));
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    if (range[1] > range[0]) {
      match(range[0], range[1]);
      pos = range[1];
    } else {
      pos = range[1] >= text.size() ? text.size() : range[1] + utf8_length(text[range[1]]);
    }
  }
}

}  // namespace tutti
