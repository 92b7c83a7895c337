#include "comm/tcp_transport.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "base/log.h"
#include "comm/reduce.h"
#include "comm/slices.h"

namespace tutti {
namespace {

// Before measuring: below this every rank sends its whole part to every other.
constexpr size_t kOneShotBytes = size_t{16} << 10;
constexpr std::chrono::milliseconds kMeasureTime{60};
// A large message goes in segments, so that the scratch memory stays small and in the cache.
constexpr size_t kSegmentBytes = size_t{2} << 20;
// Below this a message is not worth cutting over several streams.
constexpr size_t kStripeBytes = size_t{256} << 10;
// Two ranks add what has arrived in pieces of this size.
constexpr size_t kSumBytes = size_t{32} << 10;
constexpr size_t kWindowBytes = size_t{256} << 10;
static_assert(kWindowBytes % kSumBytes == 0);
// A rank sends no more than this beyond what has come from its peer in the same exchange.
constexpr size_t kAheadBytes = size_t{512} << 10;

}  // namespace

TcpTransport::TcpTransport(CommGroup group, std::unique_ptr<Wire> wire, CommDType comm_dtype)
    : group_(std::move(group)),
      comm_dtype_(comm_dtype),
      wire_(std::move(wire)),
      table_(kOneShotBytes),
      parts_(static_cast<size_t>(group_.size)),
      encoded_parts_(static_cast<size_t>(group_.size)) {}

void TcpTransport::measure(const Call& call) {
  if (group_.size == 2) return;  // there is one way between two
  std::vector<float> data(kSegmentBytes / sizeof(float));
  SumTrial trial;
  trial.ways = {SumWay::kOneShot, SumWay::kTwoShot};
  trial.run = [&](SumWay way, size_t bytes) {
    auto* begin = reinterpret_cast<std::byte*>(data.data());
    const auto count = static_cast<int64_t>(bytes / sizeof(float));
    way == SumWay::kOneShot ? one_shot(call, begin, count, DType::kF32)
                            : two_shot(call, begin, count, DType::kF32);
  };
  trial.slowest = [&](double seconds) { return slowest_of(*this, call, group_.size, seconds); };
  measure_algorithms(table_, trial, kSegmentBytes, kMeasureTime);
  log::debug(fmt::format("group {} over {}: {}", group_.name, wire_->name(), table_.text()));
}

// Both ends cut a message of this size the same way.
void TcpTransport::add(int peer, bool sending, void* data, size_t bytes) {
  auto* begin = static_cast<std::byte*>(data);
  const size_t streams =
      std::clamp<size_t>(bytes / kStripeBytes, 1, static_cast<size_t>(wire_->num_streams()));
  const size_t stripe = (bytes / streams + 63) / 64 * 64;
  for (size_t s = 0; s < streams && bytes > 0; ++s) {
    const size_t n = s + 1 == streams ? bytes : std::min(bytes, stripe);
    transfers_.push_back({peer, static_cast<int>(s), sending, begin, n});
    begin += n;
    bytes -= n;
  }
}

// Ranks that poured large messages into the system's buffers, each ahead of what the other reads, stood still for 10 to 60 ms now and
// then, most likely as the buffers were full and room in them is noticed late. So they go hand in hand.
void TcpTransport::exchange(const Call& call) {
  const auto keep_pace = [this] {
    for (Transfer& out : transfers_) {
      if (!out.sending || out.bytes <= kAheadBytes) continue;
      const auto back = std::find_if(transfers_.begin(), transfers_.end(), [&](const Transfer& t) {
        return !t.sending && t.peer == out.peer && t.stream == out.stream && t.left() > 0;
      });
      out.limit = back == transfers_.end() ? Transfer::kNone : back->done + kAheadBytes;
    }
  };
  keep_pace();
  wire_->exchange(call, transfers_, keep_pace);
  transfers_.clear();
}

std::byte* TcpTransport::scratch(size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

void TcpTransport::all_reduce(const Call& call, void* data, int64_t count, DType dtype) {
  auto* bytes = static_cast<std::byte*>(data);
  const bool real = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
  if (comm_dtype_ != CommDType::kFull && real) return encoded_sum(call, data, count, dtype);
  if (group_.size == 2) return exchange_and_sum(call, bytes, count, dtype);
  const size_t element = dtype_bytes(dtype, 1);
  const auto per_segment = static_cast<int64_t>(kSegmentBytes / element);
  for (int64_t begin = 0; begin < count; begin += per_segment) {
    const int64_t n = std::min(per_segment, count - begin);
    std::byte* segment = bytes + static_cast<size_t>(begin) * element;
    if (table_.choose(static_cast<size_t>(n) * element) == SumWay::kOneShot) {
      one_shot(call, segment, n, dtype);
    } else {
      two_shot(call, segment, n, dtype);
    }
  }
}

void TcpTransport::exchange_and_sum(const Call& call, std::byte* data, int64_t count, DType dtype) {
  const int other = 1 - group_.rank;
  const size_t bytes = dtype_bytes(dtype, count);
  const size_t element = dtype_bytes(dtype, 1);
  const auto sum = [&](std::byte* ours, const std::byte* theirs, size_t n) {
    parts_[static_cast<size_t>(group_.rank)] = ours;
    parts_[static_cast<size_t>(other)] = theirs;
    sum_in_order(ours, parts_.data(), 2, static_cast<int64_t>(n / element), dtype);
  };
  add_send(other, data, bytes);
  const size_t streams = transfers_.size();
  if (bytes <= kWindowBytes) {
    std::byte* theirs = scratch(bytes);
    add_recv(other, theirs, bytes);
    exchange(call);
    return sum(data, theirs, bytes);
  }
  // The other's part goes through a window that stays in the cache; each stripe has its own.
  std::byte* windows = scratch(streams * kWindowBytes);
  for (size_t s = 0; s < streams; ++s) {
    transfers_.push_back({other, static_cast<int>(s), false, windows + s * kWindowBytes,
                          transfers_[s].bytes, 0, kWindowBytes, kWindowBytes});
  }
  std::vector<size_t> summed(streams);
  wire_->exchange(call, transfers_, [&] {
    for (size_t s = 0; s < streams; ++s) {
      const Transfer& out = transfers_[s];
      Transfer& in = transfers_[streams + s];
      // What has not been sent must not change yet.
      const size_t moved = std::min(out.done, in.done);
      const size_t end = moved == out.bytes ? moved : moved / kSumBytes * kSumBytes;
      while (summed[s] < end) {
        const size_t place = summed[s] % kWindowBytes;
        const size_t n = std::min(end - summed[s], kWindowBytes - place);
        sum(out.data + summed[s], in.data + place, n);
        summed[s] += n;
      }
      in.limit = summed[s] + kWindowBytes;
    }
  });
  transfers_.clear();
}

void TcpTransport::one_shot(const Call& call, std::byte* data, int64_t count, DType dtype) {
  const size_t bytes = dtype_bytes(dtype, count);
  std::byte* theirs = scratch(bytes * static_cast<size_t>(group_.size));
  parts_[static_cast<size_t>(group_.rank)] = data;
  for_others([&](int r) { add_send(r, data, bytes); });
  for_others([&](int r) {
    std::byte* part = theirs + static_cast<size_t>(r) * bytes;
    add_recv(r, part, bytes);
    parts_[static_cast<size_t>(r)] = part;
  });
  exchange(call);
  sum_in_order(data, parts_.data(), group_.size, count, dtype);
}

void TcpTransport::two_shot(const Call& call, std::byte* data, int64_t count, DType dtype) {
  const Slice own = slice_of(count, group_.rank, group_.size);
  const size_t own_bytes = dtype_bytes(dtype, own.count);
  std::byte* own_data = data + dtype_bytes(dtype, own.begin);
  std::byte* theirs = scratch(own_bytes * static_cast<size_t>(group_.size));
  const auto begin_of = [&](const Slice& s) { return data + dtype_bytes(dtype, s.begin); };
  parts_[static_cast<size_t>(group_.rank)] = own_data;
  for_others([&](int r) {
    const Slice slice = slice_of(count, r, group_.size);
    add_send(r, begin_of(slice), dtype_bytes(dtype, slice.count));
  });
  for_others([&](int r) {
    std::byte* part = theirs + static_cast<size_t>(r) * own_bytes;
    add_recv(r, part, own_bytes);
    parts_[static_cast<size_t>(r)] = part;
  });
  exchange(call);
  sum_in_order(own_data, parts_.data(), group_.size, own.count, dtype);

  for_others([&](int r) { add_send(r, own_data, own_bytes); });
  for_others([&](int r) {
    const Slice slice = slice_of(count, r, group_.size);
    add_recv(r, begin_of(slice), dtype_bytes(dtype, slice.count));
  });
  exchange(call);
}

void TcpTransport::encoded_sum(const Call& call, void* data, int64_t count, DType dtype) {
  const auto per_segment = static_cast<int64_t>(kSegmentBytes / sizeof(float));
  for (int64_t begin = 0; begin < count; begin += per_segment) {
    const int64_t n = std::min(per_segment, count - begin);
    std::byte* segment = static_cast<std::byte*>(data) + dtype_bytes(dtype, begin);
    auto* floats = reinterpret_cast<float*>(segment);
    if (dtype != DType::kF32) {
      floats_.resize(static_cast<size_t>(n));
      floats = floats_.data();
      to_float(floats, segment, n, dtype);
    }
    const bool one = group_.size == 2 || table_.choose(codec_bytes(n)) == SumWay::kOneShot;
    one ? encoded_one_shot(call, floats, n) : encoded_two_shot(call, floats, n);
    if (dtype != DType::kF32) from_float(segment, floats, n, dtype);
  }
}

// The own part is summed in its encoded form too: all ranks add the same numbers.
void TcpTransport::encoded_one_shot(const Call& call, float* data, int64_t count) {
  CodecBlock* all = blocks(count * group_.size + kCodecBlock * group_.size);
  const auto part_of = [&](int r) { return all + r * codec_blocks(count); };
  encode(part_of(group_.rank), data, count, comm_dtype_);
  for_others([&](int r) { add_send(r, part_of(group_.rank), codec_bytes(count)); });
  for_others([&](int r) { add_recv(r, part_of(r), codec_bytes(count)); });
  exchange(call);
  for (int r = 0; r < group_.size; ++r) encoded_parts_[static_cast<size_t>(r)] = part_of(r);
  sum_encoded(data, encoded_parts_.data(), group_.size, count, comm_dtype_);
}

void TcpTransport::encoded_two_shot(const Call& call, float* data, int64_t count) {
  // Slices begin on whole blocks, so the encoded message is cut like the plain one.
  static_assert(kSliceElements % kCodecBlock == 0);
  const Slice own = slice_of(count, group_.rank, group_.size);
  CodecBlock* message = blocks(count + kCodecBlock + (own.count + kCodecBlock) * group_.size);
  CodecBlock* theirs = message + codec_blocks(count);
  const auto in_message = [&](const Slice& s) { return message + s.begin / kCodecBlock; };
  encode(message, data, count, comm_dtype_);
  encoded_parts_[static_cast<size_t>(group_.rank)] = in_message(own);
  for_others([&](int r) {
    const Slice slice = slice_of(count, r, group_.size);
    add_send(r, in_message(slice), codec_bytes(slice.count));
  });
  for_others([&](int r) {
    CodecBlock* part = theirs + r * codec_blocks(own.count);
    add_recv(r, part, codec_bytes(own.count));
    encoded_parts_[static_cast<size_t>(r)] = part;
  });
  exchange(call);
  sum_encoded(data + own.begin, encoded_parts_.data(), group_.size, own.count, comm_dtype_);

  encode(in_message(own), data + own.begin, own.count, comm_dtype_);
  for_others([&](int r) { add_send(r, in_message(own), codec_bytes(own.count)); });
  for_others([&](int r) {
    const Slice slice = slice_of(count, r, group_.size);
    add_recv(r, in_message(slice), codec_bytes(slice.count));
  });
  exchange(call);
  encoded_parts_[0] = message;
  sum_encoded(data, encoded_parts_.data(), 1, count, comm_dtype_);
}

void TcpTransport::all_gather(const Call& call, const void* send, void* recv, size_t bytes) {
  auto* to = static_cast<std::byte*>(recv);
  std::byte* own = to + static_cast<size_t>(group_.rank) * bytes;
  if (own != send && bytes > 0) std::memcpy(own, send, bytes);
  for_others([&](int r) { add_send(r, own, bytes); });
  for_others([&](int r) { add_recv(r, to + static_cast<size_t>(r) * bytes, bytes); });
  exchange(call);
}

void TcpTransport::reduce_scatter(const Call& call, const void* send, void* recv, int64_t count,
                                  DType dtype) {
  const auto* from = static_cast<const std::byte*>(send);
  auto* to = static_cast<std::byte*>(recv);
  const size_t element = dtype_bytes(dtype, 1);
  const auto per_segment = static_cast<int64_t>(kSegmentBytes / element);
  for (int64_t begin = 0; begin < count; begin += per_segment) {
    const int64_t n = std::min(per_segment, count - begin);
    const size_t bytes = static_cast<size_t>(n) * element;
    const auto piece_of = [&](int r) {
      return from + static_cast<size_t>(r * count + begin) * element;
    };
    std::byte* theirs = scratch(bytes * static_cast<size_t>(group_.size));
    parts_[static_cast<size_t>(group_.rank)] = piece_of(group_.rank);
    for_others([&](int r) { add_send(r, piece_of(r), bytes); });
    for_others([&](int r) {
      std::byte* part = theirs + static_cast<size_t>(r) * bytes;
      add_recv(r, part, bytes);
      parts_[static_cast<size_t>(r)] = part;
    });
    exchange(call);
    sum_in_order(to + static_cast<size_t>(begin) * element, parts_.data(), group_.size, n, dtype);
  }
}

void TcpTransport::broadcast(const Call& call, void* data, size_t bytes, int root) {
  if (group_.rank == root) {
    for_others([&](int r) { add_send(r, data, bytes); });
  } else {
    add_recv(root, data, bytes);
  }
  exchange(call);
}

void TcpTransport::all_to_all(const Call& call, const void* send, void* recv, size_t bytes) {
  const auto* from = static_cast<const std::byte*>(send);
  auto* to = static_cast<std::byte*>(recv);
  const auto offset = [bytes](int r) { return static_cast<size_t>(r) * bytes; };
  if (to != from && bytes > 0)
    std::memcpy(to + offset(group_.rank), from + offset(group_.rank), bytes);
  for_others([&](int r) { add_send(r, from + offset(r), bytes); });
  for_others([&](int r) { add_recv(r, to + offset(r), bytes); });
  exchange(call);
}

void TcpTransport::send(const Call& call, const void* data, size_t bytes, int to) {
  add_send(to, data, bytes);
  exchange(call);
}

void TcpTransport::recv(const Call& call, void* data, size_t bytes, int from) {
  add_recv(from, data, bytes);
  exchange(call);
}

void TcpTransport::barrier(const Call& call) {
  std::byte out{1};
  std::vector<std::byte> in(static_cast<size_t>(group_.size));
  for_others([&](int r) { add_send(r, &out, 1); });
  for_others([&](int r) { add_recv(r, &in[static_cast<size_t>(r)], 1); });
  exchange(call);
}

}  // namespace tutti
