#include "collectives.h"

#include <fmt/format.h>

#include <cstring>
#include <random>
#include <stdexcept>

#include "base/check.h"
#include "tensor/half.h"

namespace tutti {
namespace {

// Small integers: exact in every type, and so are the sums over eight ranks.
int64_t value_of(int rank, int64_t i) { return (i * 7 + rank * 13) % 32 - 8; }

int64_t sum_of(int size, int64_t i) {
  int64_t sum = 0;
  for (int r = 0; r < size; ++r) sum += value_of(r, i);
  return sum;
}

void store(std::vector<std::byte>& data, DType dtype, int64_t i, int64_t value) {
  const auto put = [&](auto element) {
    std::memcpy(data.data() + static_cast<size_t>(i) * sizeof element, &element, sizeof element);
  };
  const auto real = static_cast<float>(value);
  switch (dtype) {
    case DType::kF32:
      return put(real);
    case DType::kF16:
      return put(float_to_half(real));
    case DType::kBF16:
      return put(float_to_bfloat16(real));
    case DType::kI32:
      return put(static_cast<int32_t>(value));
    case DType::kI64:
      return put(value);
    default:
      TUTTI_CHECK_FAILED("no such element type in this test");
  }
}

class Digest {
 public:
  void add(const void* data, size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) hash_ = (hash_ ^ p[i]) * 0x100000001b3u;
  }
  std::string text() const { return fmt::format("{:016x}", hash_); }

 private:
  uint64_t hash_ = 0xcbf29ce484222325u;
};

void require_equal(const std::vector<std::byte>& found, const std::vector<std::byte>& expected,
                   const std::string& what) {
  if (found == expected) return;
  size_t i = 0;
  while (i < found.size() && found[i] == expected[i]) ++i;
  throw std::runtime_error(fmt::format("{}: byte {} of {} is wrong", what, i, found.size()));
}

struct Round {
  Communicator& comm;
  Digest& digest;
  int64_t count;
  int rank = comm.rank();
  int size = comm.size();

  std::string text(std::string_view what) const {
    return fmt::format("{} of {} on rank {} of {} over {}", what, count, rank, size,
                       comm.transport());
  }

  void reductions(DType dtype) const {
    std::vector<std::byte> data(dtype_bytes(dtype, count)), expected(data.size());
    for (int64_t i = 0; i < count; ++i) {
      store(data, dtype, i, value_of(rank, i));
      store(expected, dtype, i, sum_of(size, i));
    }
    comm.all_reduce(data.data(), count, dtype);
    require_equal(data, expected, text(fmt::format("all-reduce {}", dtype_name(dtype))));
    digest.add(data.data(), data.size());

    const int64_t total = count * size;
    std::vector<std::byte> all(dtype_bytes(dtype, total)), own(dtype_bytes(dtype, count));
    for (int64_t i = 0; i < total; ++i) store(all, dtype, i, value_of(rank, i));
    for (int64_t i = 0; i < count; ++i) store(expected, dtype, i, sum_of(size, rank * count + i));
    comm.reduce_scatter(all.data(), own.data(), count, dtype);
    require_equal(own, expected, text(fmt::format("reduce-scatter {}", dtype_name(dtype))));
  }

  // Byte i of piece `to` that `from` sends.
  static std::byte byte_of(int from, int to, int64_t i) {
    return static_cast<std::byte>((i * 31 + from * 7 + to * 3 + (i >> 8)) & 0xff);
  }
  std::vector<std::byte> piece(int from, int to) const {
    std::vector<std::byte> bytes(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) bytes[static_cast<size_t>(i)] = byte_of(from, to, i);
    return bytes;
  }
  static void append(std::vector<std::byte>& all, const std::vector<std::byte>& part) {
    all.insert(all.end(), part.begin(), part.end());
  }

  void gathers() const {
    const auto bytes = static_cast<size_t>(count);
    std::vector<std::byte> expected;
    for (int r = 0; r < size; ++r) append(expected, piece(r, 0));
    std::vector<std::byte> gathered(expected.size());
    const std::vector<std::byte> own = piece(rank, 0);
    comm.all_gather(own.data(), gathered.data(), bytes);
    require_equal(gathered, expected, text("all-gather"));
    digest.add(gathered.data(), gathered.size());

    std::vector<std::byte> in_place(expected.size());
    std::byte* own_place = in_place.data() + static_cast<size_t>(rank) * bytes;
    if (bytes > 0) std::memcpy(own_place, own.data(), bytes);
    comm.all_gather(own_place, in_place.data(), bytes);
    require_equal(in_place, expected, text("all-gather in place"));

    std::vector<std::byte> out, in(expected.size()), expected_in;
    for (int r = 0; r < size; ++r) {
      append(out, piece(rank, r));
      append(expected_in, piece(r, rank));
    }
    comm.all_to_all(out.data(), in.data(), bytes);
    require_equal(in, expected_in, text("all-to-all"));
  }

  void broadcasts() const {
    // Several in a row with changing roots: nobody may overtake a slow reader.
    for (int root = 0; root < size; ++root) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        const std::vector<std::byte> expected = piece(root, repeat);
        std::vector<std::byte> data =
            rank == root ? expected : std::vector<std::byte>(expected.size());
        comm.broadcast(data.data(), data.size(), root);
        require_equal(data, expected, text("broadcast"));
        digest.add(data.data(), data.size());
      }
    }
  }

  // Along the ranks and back, several messages in flight.
  void messages() const {
    for (int repeat = 0; repeat < 2; ++repeat) {
      std::vector<std::byte> data = piece(repeat, 5);
      if (rank > 0) {
        std::vector<std::byte> in(data.size());
        comm.recv(in.data(), in.size(), rank - 1);
        require_equal(in, data, text("recv"));
      }
      if (rank + 1 < size) comm.send(data.data(), data.size(), rank + 1);
    }
    const std::vector<std::byte> answer = piece(3, 4);
    if (rank == size - 1 && size > 1) comm.send(answer.data(), answer.size(), 0);
    if (rank == 0 && size > 1) {
      std::vector<std::byte> in(answer.size());
      comm.recv(in.data(), in.size(), size - 1);
      require_equal(in, answer, text("recv from the last"));
    }
  }
};

}  // namespace

std::string check_collectives(Communicator& comm, const Workload& workload) {
  Digest digest;
  for (const int64_t count : workload.counts) {
    const Round round{comm, digest, count};
    for (const DType dtype : workload.dtypes) round.reductions(dtype);
    round.gathers();
    round.broadcasts();
    round.messages();
    comm.barrier();
  }
  return digest.text();
}

std::string check_rounding(Communicator& comm, bool in_rank_order) {
  Digest digest;
  for (const int64_t count : {1, 333, 20000, 70001}) {
    std::vector<std::vector<float>> parts;
    for (int r = 0; r < comm.size(); ++r) {
      std::mt19937 random(static_cast<unsigned>(100 + r));
      std::normal_distribution<float> normal(0.0f, 100.0f);
      parts.emplace_back(static_cast<size_t>(count));
      for (float& x : parts.back()) x = normal(random);
    }
    std::vector<float> data = parts[static_cast<size_t>(comm.rank())];
    comm.all_reduce(data.data(), count, DType::kF32);
    digest.add(data.data(), data.size() * sizeof(float));
    for (size_t i = 0; in_rank_order && i < data.size(); ++i) {
      float sum = parts[0][i];
      for (size_t r = 1; r < parts.size(); ++r) sum += parts[r][i];
      if (sum != data[i])
        throw std::runtime_error(fmt::format("element {} is not the sum in rank order", i));
    }
  }
  return digest.text();
}

}  // namespace tutti
