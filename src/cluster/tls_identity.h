// Mutual TLS without a PKI. scrypt(token) is the private key of the cluster's certificate authority, so every process
// that holds the token can sign itself a fresh certificate and check those of its peers; nobody else can. Certificates
// do not expire by the clock: they live as long as the process, and clocks of nodes may differ.
#pragma once

#include <cstdint>
#include <string>

#include "base/deadline.h"
#include "cluster/token.h"

namespace tutti {

// The name in every certificate, which gRPC checks in place of a host name.
inline constexpr const char* kTlsName = "tutti-cluster";

// All three in PEM.
struct TlsIdentity {
  std::string authority;
  std::string certificate;
  std::string private_key;
};

// Takes about 0.1 s: scrypt is slow on purpose.
TlsIdentity issue_identity(const ClusterToken& token);

enum class ProbeResult {
  kOk,          // a head with our token
  kRefused,     // nobody listens, no route, or the connection was closed
  kNotTutti,    // somebody else listens there
  kWrongToken,  // a head with another token
};

struct Probe {
  ProbeResult result = ProbeResult::kRefused;
  std::string detail;  // the system's or the peer's reason
};

// One TLS handshake with the head, to learn why a connection would fail before gRPC hides the reason.
Probe probe_head(const std::string& address, int port, const TlsIdentity& identity, Deadline deadline);

}  // namespace tutti
