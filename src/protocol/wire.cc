#include "protocol/wire.h"

#include <bit>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tutti::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire format is the memory format of little-endian hosts");

constexpr uint32_t kMagic = 0x54545754;  // "TWTT"
enum class Kind : uint16_t { kSchedulerOutput = 1, kModelRunnerOutput = 2 };

// The layout, once for both directions: `A` is Writer or Reader, which take the fields in wire order.
template <typename A, typename T>
void struct_fields(A& a, T& v) {
  using S = std::remove_const_t<T>;
  if constexpr (std::is_same_v<S, SamplingParams>) {
    a(v.temperature, v.top_p, v.top_k, v.min_p, v.repetition_penalty, v.frequency_penalty, v.presence_penalty, v.seed,
      v.max_tokens, v.min_tokens, v.ignore_eos, v.stop_token_ids, v.logit_bias, v.allowed_token_ids, v.bad_words,
      v.logprobs, v.prompt_logprobs, v.grammar);
  } else if constexpr (std::is_same_v<S, NewRequestData>) {
    a(v.id, v.token_ids, v.num_prompt_tokens, v.sampling);
  } else if constexpr (std::is_same_v<S, ScheduledRequest>) {
    a(v.id, v.num_tokens, v.num_computed_tokens, v.new_block_ids, v.samples);
  } else if constexpr (std::is_same_v<S, SchedulerOutput>) {
    a(v.step, v.new_requests, v.scheduled, v.dropped);
  } else if constexpr (std::is_same_v<S, TokenLogprob>) {
    a(v.token_id, v.logprob, v.rank);
  } else if constexpr (std::is_same_v<S, SampledToken>) {
    a(v.id, v.token_id, v.logprobs, v.prompt_logprobs, v.has_token);
  } else if constexpr (std::is_same_v<S, StepTiming>) {
    a(v.rank, v.total_us, v.compute_us, v.comm_us, v.comm_bytes, v.pp_comm_us, v.pp_comm_bytes);
  } else if constexpr (std::is_same_v<S, ModelRunnerOutput>) {
    a(v.step, v.sampled, v.timings);
  } else {
    static_assert(!sizeof(S), "a struct without a wire layout");
  }
}

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};
template <typename T>
struct IsPair : std::false_type {};
template <typename A, typename B>
struct IsPair<std::pair<A, B>> : std::true_type {};
template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};

class Writer {
 public:
  template <typename... T>
  void operator()(const T&... values) {
    (write(values), ...);
  }
  std::string take() { return std::move(bytes_); }

 private:
  template <typename T>
  void write(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      bytes_.push_back(value ? 1 : 0);
    } else if constexpr (std::is_arithmetic_v<T>) {
      bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else if constexpr (IsOptional<T>::value) {
      write(value.has_value());
      if (value) write(*value);
    } else if constexpr (IsPair<T>::value) {
      (*this)(value.first, value.second);
    } else if constexpr (std::is_same_v<T, GrammarBytes>) {
      write(static_cast<uint32_t>(value.bytes().size()));
      bytes_ += value.bytes();
    } else if constexpr (IsVector<T>::value) {
      write(static_cast<uint32_t>(value.size()));
      if constexpr (std::is_arithmetic_v<typename T::value_type>) {
        if (!value.empty()) {
          bytes_.append(reinterpret_cast<const char*>(value.data()), value.size() * sizeof(value[0]));
        }
      } else {
        for (const auto& item : value) write(item);
      }
    } else {
      struct_fields(*this, value);
    }
  }

  std::string bytes_;
};

// The fewest bytes that a value of type T takes on the wire: what a lying count is checked against.
template <typename T>
constexpr size_t min_bytes() {
  if constexpr (std::is_same_v<T, bool> || IsOptional<T>::value) {
    return 1;
  } else if constexpr (std::is_arithmetic_v<T>) {
    return sizeof(T);
  } else if constexpr (IsPair<T>::value) {
    return min_bytes<typename T::first_type>() + min_bytes<typename T::second_type>();
  } else if constexpr (IsVector<T>::value) {
    return sizeof(uint32_t);
  } else if constexpr (std::is_same_v<T, NewRequestData>) {
    return 106;  // id, two counts and the scalars of SamplingParams
  } else if constexpr (std::is_same_v<T, ScheduledRequest>) {
    return 25;
  } else if constexpr (std::is_same_v<T, SampledToken>) {
    return 21;
  } else if constexpr (std::is_same_v<T, StepTiming>) {
    return 36;
  } else {
    static_assert(std::is_same_v<T, TokenLogprob>);
    return 12;
  }
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <typename... T>
  void operator()(T&... values) {
    (read(values), ...);
  }

  void expect_end() const {
    if (at_ != bytes_.size()) {
      throw IoError("step message: " + std::to_string(bytes_.size() - at_) + " bytes after its last field, expected none");
    }
  }

 private:
  size_t left() const { return bytes_.size() - at_; }

  void take(void* into, size_t count) {
    if (left() < count) {
      throw IoError("step message ends at byte " + std::to_string(bytes_.size()) + ": " + std::to_string(count) +
                    " bytes expected at " + std::to_string(at_));
    }
    std::memcpy(into, bytes_.data() + at_, count);
    at_ += count;
  }

  template <typename T>
  void read(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      uint8_t byte = 0;
      take(&byte, 1);
      if (byte > 1) throw IoError("step message: " + std::to_string(byte) + " where 0 or 1 is expected");
      value = byte == 1;
    } else if constexpr (std::is_arithmetic_v<T>) {
      take(&value, sizeof value);
    } else if constexpr (IsOptional<T>::value) {
      bool present = false;
      read(present);
      if (present) {
        value.emplace();
        read(*value);
      } else {
        value.reset();
      }
    } else if constexpr (IsPair<T>::value) {
      (*this)(value.first, value.second);
    } else if constexpr (std::is_same_v<T, GrammarBytes>) {
      std::vector<char> text;
      read_vector(text);
      value = GrammarBytes(std::string(text.begin(), text.end()));
    } else if constexpr (IsVector<T>::value) {
      read_vector(value);
    } else {
      struct_fields(*this, value);
    }
  }

  template <typename T>
  void read_vector(std::vector<T>& values) {
    uint32_t count = 0;
    take(&count, sizeof count);
    if (count > left() / min_bytes<T>()) {
      throw IoError("step message: a list of " + std::to_string(count) + " items where " + std::to_string(left()) +
                    " bytes are left");
    }
    values.resize(count);
    if constexpr (std::is_arithmetic_v<T>) {
      if (count > 0) take(values.data(), count * sizeof(T));
    } else {
      for (T& item : values) read(item);
    }
  }

  std::string_view bytes_;
  size_t at_ = 0;
};

template <typename T>
std::string encode_message(Kind kind, const T& message) {
  Writer writer;
  writer(kMagic, kVersion, static_cast<uint16_t>(kind), message);
  return writer.take();
}

template <typename T>
T decode_message(Kind kind, std::string_view bytes) {
  Reader reader(bytes);
  uint32_t magic = 0;
  uint16_t version = 0;
  uint16_t found = 0;
  reader(magic);
  if (magic != kMagic) throw IoError("not a step message: it does not begin with the magic number");
  reader(version);
  if (version != kVersion) {
    throw IoError("step message of version " + std::to_string(version) + ", expected " + std::to_string(kVersion) +
                  ": run the same build of tutti on all nodes");
  }
  reader(found);
  if (found != static_cast<uint16_t>(kind)) {
    throw IoError("step message of kind " + std::to_string(found) + ", expected " +
                  std::to_string(static_cast<uint16_t>(kind)));
  }
  T message;
  reader(message);
  reader.expect_end();
  return message;
}

}  // namespace

std::string encode(const SchedulerOutput& step) { return encode_message(Kind::kSchedulerOutput, step); }
std::string encode(const ModelRunnerOutput& output) { return encode_message(Kind::kModelRunnerOutput, output); }

SchedulerOutput decode_scheduler_output(std::string_view bytes) {
  return decode_message<SchedulerOutput>(Kind::kSchedulerOutput, bytes);
}

ModelRunnerOutput decode_model_runner_output(std::string_view bytes) {
  return decode_message<ModelRunnerOutput>(Kind::kModelRunnerOutput, bytes);
}

}  // namespace tutti::wire
