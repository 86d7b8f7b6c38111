// Names, shapes and places of a model's parameters in one flat fp32 buffer, so that gradients,
// optimizer moments, averages, checkpoints and published weights all share one layout.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.hpp"

namespace spotlight {

struct Parameter {
  std::string name;  // the checkpoint's name
  Shape shape;
  Index offset = 0;  // of the first value, in floats
  Index size = 0;
};

class ParameterLayout {
 public:
  // Appends a parameter right after the last one and returns its offset.
  Index Add(const std::string& name, const Shape& shape);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  Index size() const { return size_; }
  const Parameter& Find(const std::string& name) const;  // SPOTLIGHT_REQUIREs that it exists
  bool Has(const std::string& name) const { return index_.count(name) > 0; }

  // Copies the tensors of `weights` into `values` [size()]. Throws UserError with one summary line if
  // tensors are missing, unexpected or of another shape, or if a value is not finite; `source` names
  // the files in the message.
  void Load(const WeightMap& weights, const std::string& source, std::span<float> values) const;

  WeightMap ToWeightMap(std::span<const float> values) const;

 private:
  std::vector<Parameter> parameters_;
  std::map<std::string, std::size_t> index_;
  Index size_ = 0;
};

}  // namespace spotlight
