// The wire over UCX, for RDMA between CPU hosts (and whatever else UCX_TLS allows). Built where UCX's headers are; the
// library itself is opened when the first such wire is made, so that a machine without it loses nothing else.
//
// Addresses go through the store, which only members of the cluster can read; what crosses the wire is neither signed
// nor encrypted, as with TCP.
#pragma once

#include <memory>

#include "comm/store.h"
#include "comm/wire.h"

namespace tutti {

// False in a build without UCX's headers.
bool has_ucx();

// Every rank of the group calls it, on the thread that will use it. Throws ConfigError when the build or the machine
// has no UCX, CommError when a rank does not come.
std::unique_ptr<Wire> make_ucx_wire(const CommGroup& group, Store& store, Deadline deadline);

}  // namespace tutti
