// A compiled regular expression over UTF-8 (PCRE2 with its JIT). The only user of PCRE2. Const and thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tutti {

class Regex {
 public:
  // `pattern` in the dialect of tokenizer files (Oniguruma / Rust): \s, \d and \w follow Unicode, ^ and $ are those of
  // lines. Throws ConfigError with the position when it does not compile.
  explicit Regex(const std::string& pattern);
  ~Regex();
  Regex(Regex&&) noexcept;

  // Calls `match(begin, end)` for each match that is not empty, from left to right. `text` must be valid UTF-8.
  // Throws InvalidRequest when the pattern backtracks, or takes time, beyond its limits on this text.
  void for_each(std::string_view text, const std::function<void(size_t, size_t)>& match) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti
