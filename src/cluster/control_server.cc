#include "cluster/control_server.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <mutex>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "cluster/control_codec.h"
#include "cluster/grpc_options.h"
#include "control.grpc.pb.h"

namespace tutti {
namespace {

using Stream = grpc::ServerReaderWriter<control::HeadMessage, control::NodeMessage>;

class GrpcSession final : public NodeSession {
 public:
  GrpcSession(grpc::ServerContext& context, Stream& stream) : context_(context), stream_(&stream) {}

  bool send(const HeadMessage& message) override {
    const control::HeadMessage proto = to_proto(message);
    std::lock_guard lock(mutex_);
    return stream_ != nullptr && stream_->Write(proto);
  }

  void send_if_idle(const HeadMessage& message) override {
    const control::HeadMessage proto = to_proto(message);
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (lock && stream_ != nullptr) stream_->Write(proto);
  }

  // Cancelling frees a writer that holds mutex_, so it must not wait for it.
  void end() override {
    std::lock_guard lock(context_mutex_);
    if (!detached_) context_.TryCancel();
  }

  // The stream's objects die with the handler's call; the session may live longer.
  void detach() {
    {
      std::lock_guard lock(context_mutex_);
      detached_ = true;
    }
    std::lock_guard lock(mutex_);
    stream_ = nullptr;
  }

 private:
  std::mutex context_mutex_;
  bool detached_ = false;
  grpc::ServerContext& context_;
  std::mutex mutex_;
  Stream* stream_;
};

class Service final : public control::Control::Service {
 public:
  explicit Service(ControlHandler& handler) : handler_(handler) {}

  grpc::Status Join(grpc::ServerContext* context, Stream* stream) override {
    const auto session = std::make_shared<GrpcSession>(*context, *stream);
    control::NodeMessage message;
    // Whatever a node sends, its session ends in order: others may hold it, and it points to this call's stream.
    try {
      while (stream->Read(&message)) handler_.on_message(session, from_proto(message));
    } catch (const std::exception& e) {
      log::warning("a node sent what it should not, its connection ends: {}", e.what());
    }
    handler_.on_gone(session);
    session->detach();
    return grpc::Status::OK;
  }

  grpc::Status Status(grpc::ServerContext*, const control::StatusRequest*, control::StatusReply* reply) override {
    reply->set_json(handler_.status_json());
    return grpc::Status::OK;
  }

 private:
  ControlHandler& handler_;
};

}  // namespace

struct ControlServer::Impl {
  explicit Impl(ControlHandler& handler) : service(handler) {}
  Service service;
  std::unique_ptr<grpc::Server> server;
};

ControlServer::ControlServer(int port, const TlsIdentity& identity, ControlHandler& handler)
    : impl_(std::make_unique<Impl>(handler)) {
  quiet_grpc_log();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = identity.authority;
  options.pem_key_cert_pairs.push_back({identity.private_key, identity.certificate});
  grpc::ServerBuilder builder;
  int bound = 0;
  builder.AddListeningPort("[::]:" + std::to_string(port), grpc::SslServerCredentials(options), &bound);
  builder.RegisterService(&impl_->service);
  builder.SetMaxReceiveMessageSize(kMaxControlMessage);
  builder.SetMaxSendMessageSize(kMaxControlMessage);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kKeepaliveTimeMs / 2);
  impl_->server = builder.BuildAndStart();
  if (impl_->server == nullptr || bound == 0) {
    throw ConfigError("cannot listen on the control port " + std::to_string(port) +
                      ": it is taken. --master-port chooses another (the same on all nodes)");
  }
}

ControlServer::~ControlServer() {
  impl_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  impl_->server->Wait();
}

}  // namespace tutti
