// The cluster token: whoever holds it may join. Made once by the head, kept in the state folder with mode 0600 and
// never written to a log. Called on the main thread while a process starts.
#pragma once

#include <optional>
#include <string>

namespace tutti {

// "tutti1-<cluster id, 8 hex digits>-<secret, 32 hex digits>", or any text of a user that is long enough.
class ClusterToken {
 public:
  // Throws ConfigError when the text is too short to be a secret.
  static ClusterToken parse(const std::string& text);
  static ClusterToken generate();

  const std::string& text() const { return text_; }
  // Public: tells clusters apart on screens and in certificates.
  const std::string& cluster_id() const { return cluster_id_; }

  bool operator==(const ClusterToken&) const = default;

 private:
  ClusterToken(std::string text, std::string cluster_id) : text_(std::move(text)), cluster_id_(std::move(cluster_id)) {}

  std::string text_;
  std::string cluster_id_;
};

// Where a token may come from, besides the kept files.
struct TokenFlags {
  std::string token;       // --token
  std::string token_file;  // --token-file
};

// The file that holds the token this node made as a head.
std::string token_path();

// The token in that file, if there is one.
std::optional<ClusterToken> kept_token();

// --token, --token-file or TUTTI_CLUSTER_TOKEN. Throws ConfigError / IoError when one is given and bad.
std::optional<ClusterToken> given_token(const TokenFlags& flags);

// The head's token: the given one, else the kept one, else a new one that is kept.
ClusterToken head_token(const TokenFlags& flags);

// A worker's token for the head at `address`: the given one, the one kept when it first joined that head, or this
// node's own. Nothing when there is none.
std::optional<ClusterToken> worker_token(const TokenFlags& flags, const std::string& address);

// Keeps the token that opened the head at `address`. True when it was not kept before.
bool keep_joined_token(const std::string& address, const ClusterToken& token);

}  // namespace tutti
