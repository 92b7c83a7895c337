// Between the plain messages and their protobuf form. Included only by the two files that speak gRPC.
#pragma once

#include "cluster/control_messages.h"
#include "control.pb.h"

namespace tutti {

control::NodeMessage to_proto(const NodeMessage& message);
control::HeadMessage to_proto(const HeadMessage& message);
// An empty message (a kind of a newer build) becomes std::monostate.
NodeMessage from_proto(const control::NodeMessage& proto);
HeadMessage from_proto(const control::HeadMessage& proto);

}  // namespace tutti
