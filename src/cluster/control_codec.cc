#include "cluster/control_codec.h"

namespace tutti {
namespace {

template <typename Repeated>
void put_facts(const std::vector<Fact>& facts, Repeated* out) {
  for (const Fact& fact : facts) {
    auto* item = out->Add();
    item->set_name(fact.name);
    item->set_value(fact.value);
  }
}

template <typename Repeated>
std::vector<Fact> get_facts(const Repeated& items) {
  std::vector<Fact> facts;
  for (const auto& item : items) facts.push_back({item.name(), item.value()});
  return facts;
}

void put(const RankFrame& frame, control::RankFrame* out) {
  out->set_epoch(frame.epoch);
  out->set_rank(frame.rank);
  out->set_type(static_cast<uint32_t>(frame.frame.type));
  out->set_payload(frame.frame.payload);
}

RankFrame get(const control::RankFrame& in) {
  return {in.epoch(), in.rank(), Frame{static_cast<FrameType>(in.type()), in.payload()}};
}

void put(const NodeHello& hello, control::Hello* out) {
  out->set_name(hello.name);
  out->set_address(hello.address);
  out->set_machine(hello.machine);
  out->set_node_rank(hello.node_rank);
  out->set_first_rank(hello.first_rank);
  out->set_num_ranks(hello.num_ranks);
  out->set_cores(hello.cores);
  out->set_processor(hello.processor);
  out->set_memory_gib(hello.memory_gib);
  put_facts(hello.facts, out->mutable_facts());
  put_facts(hello.flags, out->mutable_flags());
}

NodeHello get(const control::Hello& in) {
  NodeHello hello;
  hello.name = in.name();
  hello.address = in.address();
  hello.machine = in.machine();
  hello.node_rank = in.node_rank();
  hello.first_rank = in.first_rank();
  hello.num_ranks = in.num_ranks();
  hello.cores = in.cores();
  hello.processor = in.processor();
  hello.memory_gib = in.memory_gib();
  hello.facts = get_facts(in.facts());
  hello.flags = get_facts(in.flags());
  return hello;
}

void put(const NodeModelFiles& model, control::ModelFiles* out) {
  for (const ModelFile& file : model.files) {
    auto* item = out->add_files();
    item->set_name(file.name);
    item->set_size(file.size);
    item->set_hash(file.hash);
  }
  out->set_error(model.error);
}

NodeModelFiles get(const control::ModelFiles& in) {
  NodeModelFiles model;
  for (const auto& file : in.files()) model.files.push_back({file.name(), file.size(), file.hash()});
  model.error = in.error();
  return model;
}

// One overload a kind; std::visit picks it.
struct NodeWriter {
  control::NodeMessage& out;
  void operator()(std::monostate) const {}
  void operator()(const NodeHello& m) const { put(m, out.mutable_hello()); }
  void operator()(const NodeModelFiles& m) const { put(m, out.mutable_model_files()); }
  void operator()(const RankFrame& m) const { put(m, out.mutable_frame()); }
  void operator()(const RankStarted& m) const {
    out.mutable_started()->set_epoch(m.epoch);
    out.mutable_started()->set_rank(m.rank);
    out.mutable_started()->set_pid(m.pid);
  }
  void operator()(const RankExit& m) const {
    out.mutable_exit()->set_epoch(m.epoch);
    out.mutable_exit()->set_rank(m.rank);
    out.mutable_exit()->set_how(m.how);
  }
  void operator()(const NodeHeartbeat& m) const {
    auto* heartbeat = out.mutable_heartbeat();
    for (const auto& [rank, state] : m.states) {
      auto* item = heartbeat->add_states();
      item->set_rank(rank);
      item->set_state(state);
    }
  }
  void operator()(const Leaving& m) const { out.mutable_leaving()->set_reason(m.reason); }
};

struct HeadWriter {
  control::HeadMessage& out;
  void operator()(std::monostate) const {}
  void operator()(const Welcome& m) const {
    auto* welcome = out.mutable_welcome();
    welcome->set_cluster_id(m.cluster_id);
    welcome->set_head_name(m.head_name);
    welcome->set_node_name(m.node_name);
    for (const int rank : m.ranks) welcome->add_ranks(rank);
    welcome->set_model(m.model);
    welcome->set_model_path(m.model_path);
    welcome->set_shutdown_timeout_s(m.shutdown_timeout_s);
  }
  void operator()(const Refusal& m) const {
    out.mutable_refusal()->set_reason(m.reason);
    for (const std::string& line : m.table) out.mutable_refusal()->add_table(line);
    out.mutable_refusal()->set_retry(m.retry);
  }
  void operator()(const StartRanks& m) const {
    out.mutable_start()->set_epoch(m.epoch);
    for (const auto& [rank, config] : m.ranks) {
      auto* item = out.mutable_start()->add_ranks();
      item->set_rank(rank);
      item->set_config(config);
    }
  }
  void operator()(const StopRanks& m) const {
    out.mutable_stop()->set_epoch(m.epoch);
    out.mutable_stop()->set_reason(m.reason);
    out.mutable_stop()->set_leave(m.leave);
    out.mutable_stop()->set_failed(m.failed);
  }
  void operator()(const RankFrame& m) const { put(m, out.mutable_frame()); }
  void operator()(const HeadHeartbeat&) const { out.mutable_heartbeat(); }
};

NodeHeartbeat get(const control::NodeHeartbeat& in) {
  NodeHeartbeat heartbeat;
  for (const auto& item : in.states()) heartbeat.states.emplace_back(item.rank(), static_cast<char>(item.state()));
  return heartbeat;
}

Welcome get(const control::Welcome& in) {
  return {in.cluster_id(), in.head_name(), in.node_name(), {in.ranks().begin(), in.ranks().end()}, in.model(), in.model_path(),
          in.shutdown_timeout_s()};
}

StartRanks get(const control::StartRanks& in) {
  StartRanks start;
  start.epoch = in.epoch();
  for (const auto& item : in.ranks()) start.ranks.emplace_back(item.rank(), item.config());
  return start;
}

}  // namespace

control::NodeMessage to_proto(const NodeMessage& message) {
  control::NodeMessage proto;
  std::visit(NodeWriter{proto}, message);
  return proto;
}

control::HeadMessage to_proto(const HeadMessage& message) {
  control::HeadMessage proto;
  std::visit(HeadWriter{proto}, message);
  return proto;
}

NodeMessage from_proto(const control::NodeMessage& proto) {
  switch (proto.kind_case()) {
    case control::NodeMessage::kHello:
      return get(proto.hello());
    case control::NodeMessage::kModelFiles:
      return get(proto.model_files());
    case control::NodeMessage::kFrame:
      return get(proto.frame());
    case control::NodeMessage::kStarted:
      return RankStarted{proto.started().epoch(), proto.started().rank(), proto.started().pid()};
    case control::NodeMessage::kExit:
      return RankExit{proto.exit().epoch(), proto.exit().rank(), proto.exit().how()};
    case control::NodeMessage::kHeartbeat:
      return get(proto.heartbeat());
    case control::NodeMessage::kLeaving:
      return Leaving{proto.leaving().reason()};
    case control::NodeMessage::KIND_NOT_SET:
      break;
  }
  return {};
}

HeadMessage from_proto(const control::HeadMessage& proto) {
  switch (proto.kind_case()) {
    case control::HeadMessage::kWelcome:
      return get(proto.welcome());
    case control::HeadMessage::kRefusal:
      return Refusal{proto.refusal().reason(),
                     {proto.refusal().table().begin(), proto.refusal().table().end()},
                     proto.refusal().retry()};
    case control::HeadMessage::kStart:
      return get(proto.start());
    case control::HeadMessage::kStop:
      return StopRanks{proto.stop().epoch(), proto.stop().reason(), proto.stop().leave(), proto.stop().failed()};
    case control::HeadMessage::kFrame:
      return get(proto.frame());
    case control::HeadMessage::kHeartbeat:
      return HeadHeartbeat{};
    case control::HeadMessage::KIND_NOT_SET:
      break;
  }
  return {};
}

}  // namespace tutti
