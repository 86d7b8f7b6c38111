// Where a model's weights are read from, one tensor at a time: files (io) on one side, models on the other.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bfloat16.hpp"
#include "base/tensor.hpp"

namespace spotlight {

// All errors are UserErrors that name the file and the tensor: a tensor that is absent, of a dtype that cannot be
// converted, or holds a value that is not finite.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual const std::string& place() const = 0;  // the files, for messages
  virtual std::vector<std::string> Names() const = 0;
  virtual bool Has(const std::string& name) const = 0;
  virtual Shape ShapeOf(const std::string& name) const = 0;
  // out.size() is the number of elements. To bfloat16 is rounded to nearest.
  virtual void Read(const std::string& name, std::span<float> out) const = 0;
  virtual void Read(const std::string& name, std::span<Bfloat16> out) const = 0;
};

// Tensors that are in memory already.
class WeightMapSource : public TensorSource {
 public:
  WeightMapSource(WeightMap weights, std::string place) : weights_(std::move(weights)), place_(std::move(place)) {}

  const std::string& place() const override { return place_; }
  std::vector<std::string> Names() const override;
  bool Has(const std::string& name) const override { return weights_.contains(name); }
  Shape ShapeOf(const std::string& name) const override;
  void Read(const std::string& name, std::span<float> out) const override;
  void Read(const std::string& name, std::span<Bfloat16> out) const override;

 private:
  const HostTensor& Tensor(const std::string& name) const;

  WeightMap weights_;
  std::string place_;
};

}  // namespace spotlight
