// How numbers are stored where that is chosen at run time; sums of them are fp32 all the same.
#pragma once

#include <cstdint>

namespace spotlight {

enum class ElementType : std::uint8_t { kFp32, kBf16 };

constexpr std::int64_t SizeOf(ElementType type) { return type == ElementType::kFp32 ? 4 : 2; }

}  // namespace spotlight
