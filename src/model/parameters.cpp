#include "model/parameters.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace spotlight {
namespace {

// "3 missing (a, b, c)", at most three names.
std::string Summary(const std::string& what, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string text = std::to_string(names.size());
  text += " " + what + " (";
  for (std::size_t i = 0; i < std::min<std::size_t>(3, names.size()); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > 3) text += ", ...";
  return text + ")";
}

}  // namespace

Index ParameterLayout::Add(const std::string& name, const Shape& shape) {
  SPOTLIGHT_REQUIRE(!Has(name), "parameter " + name + " is added twice");
  index_[name] = parameters_.size();
  parameters_.push_back({name, shape, size_, NumElements(shape)});
  size_ += parameters_.back().size;
  return parameters_.back().offset;
}

const Parameter& ParameterLayout::Find(const std::string& name) const {
  const auto found = index_.find(name);
  SPOTLIGHT_REQUIRE(found != index_.end(), "no parameter " + name);
  return parameters_[found->second];
}

void ParameterLayout::Load(const WeightMap& weights, const std::string& source, std::span<float> values) const {
  SPOTLIGHT_REQUIRE(static_cast<Index>(values.size()) == size_, "wrong buffer");
  std::vector<std::string> missing, unexpected, misshapen, broken;
  for (const Parameter& parameter : parameters_) {
    const auto found = weights.find(parameter.name);
    if (found == weights.end()) {
      missing.push_back(parameter.name);
    } else if (found->second.shape != parameter.shape) {
      misshapen.push_back(parameter.name + " is " + ToString(found->second.shape) + ", expected " +
                          ToString(parameter.shape));
    } else {
      const std::vector<float>& data = found->second.data;
      if (!std::all_of(data.begin(), data.end(), [](float x) { return std::isfinite(x); })) {
        broken.push_back(parameter.name);
      }
      std::copy(data.begin(), data.end(), values.begin() + parameter.offset);
    }
  }
  for (const auto& [name, tensor] : weights) {
    if (!Has(name)) unexpected.push_back(name);
  }
  std::string problem;
  for (const std::string& part : {Summary("missing", missing), Summary("of another shape", misshapen),
                                  Summary("unexpected", unexpected), Summary("with NaN or infinite values", broken)}) {
    if (!part.empty()) problem += (problem.empty() ? "" : "; ") + part;
  }
  if (problem.empty()) return;
  std::string cause = "the weights belong to another model than the config describes";
  if (missing.empty() && misshapen.empty() && unexpected.empty()) cause = "the file is damaged or training diverged";
  throw UserError(source + ": " + std::to_string(parameters_.size()) + " tensors expected: " + problem +
                  ". Likely cause: " + cause + "; check the path in model/path");
}

WeightMap ParameterLayout::ToWeightMap(std::span<const float> values) const {
  SPOTLIGHT_REQUIRE(static_cast<Index>(values.size()) == size_, "wrong buffer");
  WeightMap weights;
  for (const Parameter& parameter : parameters_) {
    const auto first = values.begin() + parameter.offset;
    weights[parameter.name] = {parameter.shape, std::vector<float>(first, first + parameter.size)};
  }
  return weights;
}

}  // namespace spotlight
