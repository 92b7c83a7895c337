// The protobuf wire format, as much as a SentencePiece model needs: fields one after the other, every length checked.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"

namespace tutti {

class ProtobufReader {
 public:
  // `source` names the file and the message in errors.
  ProtobufReader(std::string_view data, std::string source) : data_(data), source_(std::move(source)) {}

  // Goes to the next field; false at the end.
  bool next() {
    if (pos_ == data_.size()) return false;
    const uint64_t tag = varint();
    field_ = static_cast<int>(tag >> 3);
    switch (tag & 7) {
      case 0: number_ = varint(); break;
      case 1: number_ = fixed(8); break;
      case 2: bytes_ = take(varint()); break;
      case 5: number_ = fixed(4); break;
      default: fail("a field of wire type " + std::to_string(tag & 7));
    }
    type_ = static_cast<int>(tag & 7);
    return true;
  }

  int field() const { return field_; }
  std::string_view bytes() const { return expect(2), bytes_; }
  int64_t integer() const { return expect(0), static_cast<int64_t>(number_); }
  bool flag() const { return integer() != 0; }
  float real() const { return expect(5), std::bit_cast<float>(static_cast<uint32_t>(number_)); }

 private:
  [[noreturn]] void fail(const std::string& found) const {
    throw IoError(source_ + ": not a SentencePiece model: " + found + " at byte " + std::to_string(pos_));
  }
  void expect(int type) const {
    if (type_ != type) fail("field " + std::to_string(field_) + " has wire type " + std::to_string(type_));
  }
  std::string_view take(uint64_t size) {
    if (size > data_.size() - pos_) {
      fail("a field of " + std::to_string(size) + " bytes where " + std::to_string(data_.size() - pos_) + " are left");
    }
    const std::string_view out = data_.substr(pos_, size);
    pos_ += size;
    return out;
  }
  uint64_t fixed(size_t size) {
    uint64_t value = 0;
    std::memcpy(&value, take(size).data(), size);
    return value;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail("a number of over ten bytes");
  }

  std::string_view data_;
  std::string source_;
  size_t pos_ = 0;
  int field_ = 0;
  int type_ = -1;
  uint64_t number_ = 0;
  std::string_view bytes_;
};

}  // namespace tutti
