// Conversion of raw little-endian tensor elements. Private to io/.
//
// The dtypes are safetensors' names. F16 and BF16 become float exactly (subnormals, infinities and NaN included);
// what float or bfloat16 cannot hold is rounded to nearest, ties to even. Bfloat16 is rounded from float.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "base/bfloat16.hpp"

namespace spotlight {

// 0 if there is no such dtype.
std::size_t BytesPerElement(std::string_view dtype);

// Converts out.size() elements that start at `from`, at any alignment. False, and `out` is as it was, if `dtype` is not
// one of F64, F32, F16, BF16, I64, I32.
bool ConvertElements(std::string_view dtype, const std::byte* from, std::span<float> out);
bool ConvertElements(std::string_view dtype, const std::byte* from, std::span<double> out);
bool ConvertElements(std::string_view dtype, const std::byte* from, std::span<Bfloat16> out);

// The first element that is infinite or NaN; values.size() if there is none.
std::size_t FindNotFinite(std::span<const float> values);
std::size_t FindNotFinite(std::span<const Bfloat16> values);

}  // namespace spotlight
