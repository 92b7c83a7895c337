#include "cluster/token.h"

#include <fcntl.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"

namespace tutti {
namespace {

constexpr size_t kMinCharacters = 32;  // 128 bits, if they are random hex digits
constexpr const char* kPrefix = "tutti1-";

std::string random_hex(size_t bytes) {
  std::string raw(bytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(raw.data()), static_cast<int>(bytes)) != 1) {
    throw IoError("the system gives no random numbers for a cluster token");
  }
  std::string hex;
  for (const unsigned char byte : raw) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

bool all_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// The path of the token kept for one head; colons of IPv6 addresses and ports are plain characters in file names.
std::string joined_path(const std::string& address) { return state_folder() + "/joined-" + address; }

std::optional<ClusterToken> read_token(const std::string& path) {
  if (!file_exists(path)) return std::nullopt;
  return ClusterToken::parse(trimmed(read_file(path)));
}

// Writes `text` to `path` with mode 0600 unless the file exists. False when it does: another process was faster.
bool create_exclusively(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".new." + std::to_string(::getpid());
  write_file(temporary, text, 0600);
  const bool created = ::link(temporary.c_str(), path.c_str()) == 0;
  const int error = errno;
  ::unlink(temporary.c_str());
  if (!created && error != EEXIST) throw IoError("cannot create " + path + ": " + std::strerror(error));
  return created;
}

}  // namespace

ClusterToken ClusterToken::parse(const std::string& text) {
  const std::string token = trimmed(text);
  const std::string_view view(token);
  if (view.starts_with(kPrefix)) {
    const size_t id_at = std::strlen(kPrefix);
    const bool well_formed = view.size() == id_at + 8 + 1 + 32 && view[id_at + 8] == '-' &&
                             all_hex(view.substr(id_at, 8)) && all_hex(view.substr(id_at + 9));
    if (!well_formed) {
      throw ConfigError(
          "the cluster token is cut or mistyped: expected tutti1-, 8 hex digits, a dash and 32 hex digits. "
          "`tutti token` on the head prints the right one");
    }
    return ClusterToken(token, token.substr(id_at, 8));
  }
  if (token.size() < kMinCharacters) {
    throw ConfigError("the cluster token has " + std::to_string(token.size()) + " characters, at least " +
                      std::to_string(kMinCharacters) + " are needed. `tutti token` makes a good one");
  }
  const std::string public_text = "tutti cluster id " + token;
  return ClusterToken(token, to_hex(sha256(std::as_bytes(std::span(public_text)))).substr(0, 8));
}

ClusterToken ClusterToken::generate() { return parse(kPrefix + random_hex(4) + "-" + random_hex(16)); }

std::string token_path() { return state_folder() + "/token"; }

std::optional<ClusterToken> kept_token() { return read_token(token_path()); }

std::optional<ClusterToken> given_token(const TokenFlags& flags) {
  if (!flags.token.empty()) return ClusterToken::parse(flags.token);
  if (!flags.token_file.empty()) return ClusterToken::parse(read_file(flags.token_file));
  if (const char* token = std::getenv("TUTTI_CLUSTER_TOKEN"); token != nullptr && *token != '\0') {
    return ClusterToken::parse(token);
  }
  return std::nullopt;
}

ClusterToken head_token(const TokenFlags& flags) {
  if (auto token = given_token(flags)) return *token;
  const std::string path = token_path();
  if (auto token = read_token(path)) return *token;
  create_exclusively(path, ClusterToken::generate().text() + "\n");
  return *read_token(path);
}

std::optional<ClusterToken> worker_token(const TokenFlags& flags, const std::string& address) {
  if (auto token = given_token(flags)) return token;
  if (auto token = read_token(joined_path(address))) return token;
  return kept_token();
}

bool keep_joined_token(const std::string& address, const ClusterToken& token) {
  const std::string path = joined_path(address);
  if (const auto kept = read_token(path); kept && kept->text() == token.text()) return false;
  if (const auto own = kept_token(); own && own->text() == token.text()) return false;
  write_file(path, token.text() + "\n", 0600);
  return true;
}

}  // namespace tutti
