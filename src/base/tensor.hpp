// Named host arrays: what passes between files (io) and models.
//
// A HostTensor is row-major fp32; shape [a, b, ...] with the last index fastest. Names are the
// checkpoint's own (diffusers) names.
#pragma once

#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace spotlight {

using Index = std::int64_t;
using Shape = std::vector<Index>;

inline Index NumElements(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), Index{1}, std::multiplies<>());
}

// "[3, 4]", for messages.
std::string ToString(const Shape& shape);

struct HostTensor {
  Shape shape;
  std::vector<float> data;  // NumElements(shape) values
};

using WeightMap = std::map<std::string, HostTensor>;

}  // namespace spotlight
