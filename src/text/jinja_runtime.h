// What one render carries along: the limits that are left, and the objects whose references are
// dropped at its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace tutti::jinja {

class Object;

// Whatever a template does wrong while it runs. ChatTemplate::render turns it into an
// InvalidRequest.
class TemplateError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What the template itself raised with raise_exception(): the message is meant for the client as it
// is.
class RaisedByTemplate : public TemplateError {
 public:
  using TemplateError::TemplateError;
};

[[noreturn]] void fail(const std::string& message);

constexpr int64_t kMaxSteps = 10'000'000;      // evaluated nodes; 32 bytes of text count as one
constexpr size_t kMaxText = size_t{32} << 20;  // of the output and of any string on the way
constexpr int kMaxCallDepth = 1500;            // nested statements, expressions and macro calls
constexpr int kMaxValueDepth = 250;     // lists in lists, in either direction of building them
constexpr int64_t kMaxRange = 100'000;  // jinja2's sandbox has the same

class Runtime {
 public:
  explicit Runtime(int64_t max_steps = kMaxSteps) : max_steps_(max_steps), steps_left_(max_steps) {}
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  void step(int64_t n = 1) {
    steps_left_ -= n;
    if (steps_left_ < 0) out_of_steps();
  }
  // A string of this size is about to be made.
  void text(size_t bytes) {
    if (bytes > kMaxText) text_too_long(bytes);
    step(static_cast<int64_t>(bytes / 32) + 1);
  }
  // `object` may refer to itself in a circle; its references are dropped when the render ends.
  void drop_at_end(std::shared_ptr<Object> object) { dropped_at_end_.push_back(std::move(object)); }

  class Depth {
   public:
    explicit Depth(Runtime& rt) : rt_(rt) {
      if (++rt_.depth_ > kMaxCallDepth) {
        --rt_.depth_;  // the destructor does not run
        too_deep();
      }
    }
    ~Depth() { --rt_.depth_; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;

   private:
    Runtime& rt_;
  };

 private:
  [[noreturn]] void out_of_steps() const;
  [[noreturn]] static void text_too_long(size_t bytes);
  [[noreturn]] static void too_deep();

  int64_t max_steps_;
  int64_t steps_left_;
  int depth_ = 0;
  std::vector<std::shared_ptr<Object>> dropped_at_end_;
};

}  // namespace tutti::jinja
