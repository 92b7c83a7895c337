#include "cluster/control_client.h"

#include <grpcpp/grpcpp.h>

#include <mutex>
#include <thread>

#include "base/error.h"
#include "cluster/control_codec.h"
#include "cluster/grpc_options.h"
#include "control.grpc.pb.h"

namespace tutti {
namespace {

std::string target(const std::string& address, int port) {
  const bool ipv6 = address.find(':') != std::string::npos;
  return (ipv6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

std::shared_ptr<grpc::Channel> open_channel(const std::string& address, int port, const TlsIdentity& identity) {
  quiet_grpc_log();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = identity.authority;
  options.pem_private_key = identity.private_key;
  options.pem_cert_chain = identity.certificate;
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(kTlsName);
  arguments.SetMaxReceiveMessageSize(kMaxControlMessage);
  arguments.SetMaxSendMessageSize(kMaxControlMessage);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // A connection of its own for each client, and no detour through an HTTP proxy of the environment.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(target(address, port), grpc::SslCredentials(options), arguments);
}

std::chrono::system_clock::time_point system_time(Deadline deadline) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(deadline.left());
}

std::shared_ptr<grpc::Channel> connect(const std::string& address, int port, const TlsIdentity& identity,
                                       Deadline deadline) {
  auto channel = open_channel(address, port, identity);
  if (!channel->WaitForConnected(system_time(deadline))) {
    throw CommError("no connection to the head at " + target(address, port));
  }
  return channel;
}

}  // namespace

struct ControlClient::Impl {
  Callbacks callbacks;
  std::unique_ptr<control::Control::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<control::NodeMessage, control::HeadMessage>> stream;
  std::mutex write_mutex;
  std::thread reader;

  void read() {
    control::HeadMessage message;
    while (stream->Read(&message)) callbacks.on_message(from_proto(message));
    const grpc::Status status = stream->Finish();
    callbacks.on_gone(status.ok() ? "it ended the connection" : status.error_message());
  }
};

ControlClient::ControlClient(const std::string& address, int port, const TlsIdentity& identity, Deadline deadline,
                             Callbacks callbacks)
    : impl_(std::make_unique<Impl>()) {
  impl_->callbacks = std::move(callbacks);
  impl_->stub = control::Control::NewStub(connect(address, port, identity, deadline));
  impl_->stream = impl_->stub->Join(&impl_->context);
  impl_->reader = std::thread([impl = impl_.get()] { impl->read(); });
}

ControlClient::~ControlClient() {
  impl_->context.TryCancel();
  impl_->reader.join();
}

bool ControlClient::send(const NodeMessage& message) {
  const control::NodeMessage proto = to_proto(message);
  std::lock_guard lock(impl_->write_mutex);
  return impl_->stream->Write(proto);
}

std::string fetch_status(const std::string& address, int port, const TlsIdentity& identity, Deadline deadline) {
  const auto stub = control::Control::NewStub(connect(address, port, identity, deadline));
  grpc::ClientContext context;
  context.set_deadline(system_time(deadline));
  control::StatusReply reply;
  const grpc::Status status = stub->Status(&context, control::StatusRequest(), &reply);
  if (!status.ok()) throw CommError("the head at " + target(address, port) + " gives no status: " + status.error_message());
  return reply.json();
}

}  // namespace tutti
