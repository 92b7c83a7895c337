// Writes small GGUF (version 3) files: tiny random models and the files of tests. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace tutti {

class GgufWriter {
 public:
  explicit GgufWriter(uint32_t alignment = 32);

  // Metadata, in the order of the calls.
  void add_bool(const std::string& key, bool value);
  void add_u16(const std::string& key, uint16_t value);
  void add_u32(const std::string& key, uint32_t value);
  void add_i32(const std::string& key, int32_t value);
  void add_u64(const std::string& key, uint64_t value);
  void add_f32(const std::string& key, float value);
  void add_string(const std::string& key, std::string_view value);
  void add_strings(const std::string& key, const std::vector<std::string>& values);
  void add_i32s(const std::string& key, const std::vector<int32_t>& values);
  void add_f32s(const std::string& key, const std::vector<float>& values);

  // A contiguous tensor, rows first. Its memory is read by serialize().
  void add_tensor(const std::string& name, Tensor tensor);

  std::string serialize() const;
  // Throws IoError when the file cannot be written.
  void write(const std::string& path) const;

 private:
  template <typename T>
  void add_value(const std::string& key, uint32_t type, T value);
  void begin_array(const std::string& key, uint32_t element_type, size_t count);

  uint32_t alignment_;
  uint64_t num_pairs_ = 0;
  std::string pairs_;
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

}  // namespace tutti
