// Safetensors files as bytes, right or damaged.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

namespace spotlight {

inline std::string WithHeader(const std::string& header, const std::string& data) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data;
}

template <typename T>
std::string Bytes(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

}  // namespace spotlight
