// Connects every rank of a group with every other over TCP, through addresses in the store. Called
// once by each rank on the thread that makes its communicator.
//
// The higher rank of a pair connects to the lower one. Each connection opens with a handshake:
//
//   acceptor  -> connector   Challenge: protocol version, nonce
//   connector -> acceptor    Hello: group, epoch, ranks, nonce,
//                            HMAC-SHA256(secret, all of it and both nonces)
//   acceptor  -> connector   Welcome: verdict, HMAC-SHA256(secret, the same, other direction)
//
// So a process without the secret can neither join nor stand in for a rank, and a rank of an
// earlier epoch is refused. The bytes that follow are not encrypted, as is usual between ranks: the
// network between nodes must be trusted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "comm/store.h"
#include "comm/transport.h"

namespace tutti {

struct TcpOptions {
  std::string bind_address =
      "127.0.0.1";        // numeric; where this rank listens and what it tells the others
  std::string interface;  // if set, this interface's address instead
  int port_min = 0;       // 0, 0: any free port
  int port_max = 0;
  std::string secret;
  int streams = 1;  // connections of a pair that share its large messages
};

// The connections with one other rank.
struct TcpPeer {
  std::vector<Fd> streams;  // data
  Fd control;               // the reason of an abort, or goodbye
  std::string link;         // "tcp 10.0.0.1 - 10.0.0.2"
};

// By rank; the own entry is empty.
std::vector<TcpPeer> connect_mesh(const CommGroup& group, Store& store, const TcpOptions& options,
                                  Deadline deadline);

}  // namespace tutti
