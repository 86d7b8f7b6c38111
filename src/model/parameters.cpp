#include "model/parameters.hpp"

#include <algorithm>

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

void ParameterLayout::Check(const TensorSource& source) const {
  std::vector<std::string> missing, unexpected, misshapen;
  for (const Parameter& parameter : parameters_) {
    if (!source.Has(parameter.name)) {
      missing.push_back(parameter.name);
    } else if (const Shape shape = source.ShapeOf(parameter.name); shape != parameter.shape) {
      misshapen.push_back(parameter.name + " is " + ToString(shape) + ", expected " + ToString(parameter.shape));
    }
  }
  for (const std::string& name : source.Names()) {
    if (!Has(name)) unexpected.push_back(name);
  }
  std::string problem;
  for (const std::string& part :
       {Summary("missing", missing), Summary("of another shape", misshapen), Summary("unexpected", unexpected)}) {
    if (!part.empty()) problem += (problem.empty() ? "" : "; ") + part;
  }
  if (problem.empty()) return;
  throw UserError(source.place() + ": " + std::to_string(parameters_.size()) + " tensors expected: " + problem +
                  ". Likely cause: the weights belong to another model than the config describes; check the path in "
                  "model/path");
}

void ParameterLayout::Load(const TensorSource& source, std::span<float> values) const {
  SPOTLIGHT_REQUIRE(static_cast<Index>(values.size()) == size_, "wrong buffer");
  Check(source);
  for (const Parameter& parameter : parameters_) {
    source.Read(parameter.name,
                values.subspan(static_cast<std::size_t>(parameter.offset), static_cast<std::size_t>(parameter.size)));
  }
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
