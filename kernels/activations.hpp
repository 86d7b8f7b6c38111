// Pointers to activations whose storage is known at run time only: fp32, or bfloat16 where a back end computes from it
// (sums are fp32 everywhere). Kernels take them in place of `float*` for what flows through the branches of a block;
// the residual stream, statistics, tables, latents and gradients of weights are always fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/bfloat16.hpp"
#include "base/element_type.hpp"
#include "base/error.hpp"

namespace spotlight {

template <typename T>
inline constexpr ElementType kElementOf =
    std::is_same_v<std::remove_const_t<T>, Bfloat16> ? ElementType::kBf16 : ElementType::kFp32;

// Void: void or const void. A null pointer has no values, whatever its type. Made from float* and Bfloat16* without a
// word, and the const one from the other.
template <typename Void>
struct BasicActivations {
  template <typename T>
  using Pointer = std::conditional_t<std::is_const_v<Void>, const T*, T*>;

  Void* data = nullptr;
  ElementType type = ElementType::kFp32;

  BasicActivations() = default;
  BasicActivations(std::nullptr_t) {}
  BasicActivations(Void* memory, ElementType element) : data(memory), type(element) {}
  BasicActivations(Pointer<float> values) : data(values) {}
  BasicActivations(Pointer<Bfloat16> values) : data(values), type(ElementType::kBf16) {}
  template <typename Other>
  requires(std::is_const_v<Void> && !std::is_const_v<Other>) BasicActivations(const BasicActivations<Other>& other)
      : data(other.data), type(other.type) {}

  explicit operator bool() const { return data != nullptr; }

  // As pointers to T; internal error if they are something else.
  template <typename T>
  Pointer<T> As() const {
    SPOTLIGHT_REQUIRE(data == nullptr || type == kElementOf<T>, "activations of another element type");
    return static_cast<Pointer<T>>(data);
  }
  // `offset` elements further.
  BasicActivations operator+(std::int64_t offset) const {
    using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
    return {data == nullptr ? nullptr : static_cast<Byte*>(data) + offset * SizeOf(type), type};
  }
};

using Activations = BasicActivations<void>;
using ConstActivations = BasicActivations<const void>;

}  // namespace spotlight
