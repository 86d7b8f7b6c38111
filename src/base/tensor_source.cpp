#include "base/tensor_source.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace spotlight {

std::vector<std::string> WeightMapSource::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : weights_) names.push_back(name);
  return names;
}

const HostTensor& WeightMapSource::Tensor(const std::string& name) const {
  const auto found = weights_.find(name);
  if (found == weights_.end()) throw UserError(place_ + ": has no tensor " + name);
  return found->second;
}

Shape WeightMapSource::ShapeOf(const std::string& name) const { return Tensor(name).shape; }

void WeightMapSource::Read(const std::string& name, std::span<float> out) const {
  const std::vector<float>& data = Tensor(name).data;
  SPOTLIGHT_REQUIRE(out.size() == data.size(), name);
  if (!std::all_of(data.begin(), data.end(), [](float x) { return std::isfinite(x); })) {
    throw UserError(place_ + ": tensor " + name + " has values that are not finite");
  }
  std::copy(data.begin(), data.end(), out.begin());
}

void WeightMapSource::Read(const std::string& name, std::span<Bfloat16> out) const {
  std::vector<float> values(out.size());
  Read(name, values);
  std::transform(values.begin(), values.end(), out.begin(), ToBfloat16);
}

}  // namespace spotlight
