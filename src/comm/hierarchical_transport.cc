#include "comm/hierarchical_transport.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.h"
#include "base/error.h"
#include "comm/reduce.h"

namespace tutti {
namespace {

// The parts number their ranks differently: an error gets the number that this group's caller
// knows.
template <typename Body, typename ToRank>
void with_ranks(const Body& body, const ToRank& to_rank) {
  try {
    body();
  } catch (const CommError& error) {
    throw CommError(error.what(),
                    error.peer() < 0 ? -1 : to_rank(static_cast<size_t>(error.peer())));
  }
}

// The later part of a collective waits a little longer than the earlier one, so that the rank that
// is really missing is named by those who wait for it directly, before others blame them.
constexpr std::chrono::milliseconds kGrace{250};

Call later(const Call& call, int parts) {
  if (call.deadline.instant() == Clock::time_point::max()) return call;
  return {call.name, call.number, call.start, Deadline(call.deadline.instant() + parts * kGrace)};
}

}  // namespace

NodeLayout::NodeLayout(const std::vector<std::string>& nodes) {
  std::map<std::string, int> index;
  for (const std::string& node : nodes) {
    const auto [found, is_new] = index.emplace(node, static_cast<int>(members.size()));
    if (is_new) members.emplace_back();
    std::vector<int>& ranks = members[static_cast<size_t>(found->second)];
    local_rank_of.push_back(static_cast<int>(ranks.size()));
    ranks.push_back(static_cast<int>(node_of.size()));
    node_of.push_back(found->second);
  }
}

size_t NodeLayout::most_members() const {
  size_t most = 0;
  for (const auto& ranks : members) most = std::max(most, ranks.size());
  return most;
}

HierarchicalTransport::HierarchicalTransport(CommGroup group, NodeLayout layout, Parts parts)
    : group_(std::move(group)),
      layout_(std::move(layout)),
      node_(layout_.node_of[static_cast<size_t>(group_.rank)]),
      parts_(std::move(parts)) {
  CHECK_EQ(parts_.leaders != nullptr, local_rank(group_.rank) == 0);
}

template <typename Body>
void HierarchicalTransport::in_node(const Body& body) {
  with_ranks([&] { body(*parts_.local); }, [&](size_t r) { return my_node()[r]; });
}

template <typename Body>
void HierarchicalTransport::between_leaders(const Body& body) {
  if (parts_.leaders == nullptr) return;
  with_ranks([&] { body(*parts_.leaders); }, [&](size_t r) { return layout_.members[r][0]; });
}

void HierarchicalTransport::sum_in_place(const Call& call, void* data, int64_t count, DType dtype) {
  in_node([&](Transport& t) { t.all_reduce(call, data, count, dtype); });
  between_leaders([&](Transport& t) { t.all_reduce(later(call, 1), data, count, dtype); });
  in_node([&](Transport& t) { t.broadcast(later(call, 2), data, dtype_bytes(dtype, count), 0); });
}

void HierarchicalTransport::all_reduce(const Call& call, void* data, int64_t count, DType dtype) {
  if (dtype != DType::kF16 && dtype != DType::kBF16) return sum_in_place(call, data, count, dtype);
  floats_.resize(static_cast<size_t>(count));
  to_float(floats_.data(), data, count, dtype);
  sum_in_place(call, floats_.data(), count, DType::kF32);
  from_float(data, floats_.data(), count, dtype);
}

void HierarchicalTransport::reduce_scatter(const Call& call, const void* send, void* recv,
                                           int64_t count, DType dtype) {
  const size_t piece = dtype_bytes(dtype, count);
  const auto* from = static_cast<const std::byte*>(send);
  std::vector<std::byte> sums(from, from + piece * static_cast<size_t>(group_.size));
  all_reduce(call, sums.data(), count * group_.size, dtype);
  if (piece > 0) std::memcpy(recv, sums.data() + piece * static_cast<size_t>(group_.rank), piece);
}

void HierarchicalTransport::all_gather(const Call& call, const void* send, void* recv,
                                       size_t bytes) {
  const size_t block = layout_.most_members() * bytes;
  gathered_.resize(block * layout_.members.size());
  std::byte* own = gathered_.data() + static_cast<size_t>(node_) * block;
  in_node([&](Transport& t) { t.all_gather(call, send, own, bytes); });
  between_leaders(
      [&](Transport& t) { t.all_gather(later(call, 1), own, gathered_.data(), block); });
  in_node(
      [&](Transport& t) { t.broadcast(later(call, 2), gathered_.data(), gathered_.size(), 0); });
  if (bytes == 0) return;
  auto* to = static_cast<std::byte*>(recv);
  for (int r = 0; r < group_.size; ++r) {
    const std::byte* from = gathered_.data() + static_cast<size_t>(node_of(r)) * block;
    std::memcpy(to + static_cast<size_t>(r) * bytes,
                from + static_cast<size_t>(local_rank(r)) * bytes, bytes);
  }
}

void HierarchicalTransport::broadcast(const Call& call, void* data, size_t bytes, int root) {
  const bool with_root = node_of(root) == node_;
  if (with_root) in_node([&](Transport& t) { t.broadcast(call, data, bytes, local_rank(root)); });
  between_leaders([&](Transport& t) { t.broadcast(later(call, 1), data, bytes, node_of(root)); });
  if (!with_root) in_node([&](Transport& t) { t.broadcast(later(call, 2), data, bytes, 0); });
}

void HierarchicalTransport::all_to_all(const Call& call, const void* send, void* recv,
                                       size_t bytes) {
  parts_.direct->all_to_all(call, send, recv, bytes);
}

void HierarchicalTransport::send(const Call& call, const void* data, size_t bytes, int to) {
  if (node_of(to) != node_) return parts_.direct->send(call, data, bytes, to);
  in_node([&](Transport& t) { t.send(call, data, bytes, local_rank(to)); });
}

void HierarchicalTransport::recv(const Call& call, void* data, size_t bytes, int from) {
  if (node_of(from) != node_) return parts_.direct->recv(call, data, bytes, from);
  in_node([&](Transport& t) { t.recv(call, data, bytes, local_rank(from)); });
}

void HierarchicalTransport::barrier(const Call& call) {
  in_node([&](Transport& t) { t.barrier(call); });
  between_leaders([&](Transport& t) { t.barrier(later(call, 1)); });
  in_node([&](Transport& t) { t.barrier(later(call, 2)); });
}

void HierarchicalTransport::abort(const std::string& reason, int peer) {
  // The reason names the rank; its number in a part's own numbering is not worth a translation.
  parts_.local->abort(reason, -1);
  if (parts_.leaders != nullptr) parts_.leaders->abort(reason, -1);
  parts_.direct->abort(reason, peer);
}

}  // namespace tutti
