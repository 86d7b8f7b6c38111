// Names, shapes and places of a model's parameters, and the memory that a pass reads them from.
//
// All parameters of one kind (base, adapter) have a place in one flat fp32 array: what checkpoints, optimizer and
// published weights use. A pass reads them part by part (a block, its modulation, what is outside the blocks), because
// parts may be stored in another precision, shared out over ranks, or not be resident at all.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.hpp"
#include "base/tensor_source.hpp"
#include "kernels/linear.hpp"

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

  // Throws UserError with one summary line if tensors are missing, unexpected or of another shape.
  void Check(const TensorSource& source) const;
  // Check, then every value into its place of `values` [size()].
  void Load(const TensorSource& source, std::span<float> values) const;

  WeightMap ToWeightMap(std::span<const float> values) const;

 private:
  std::vector<Parameter> parameters_;
  std::map<std::string, std::size_t> index_;
  Index size_ = 0;
};

// Where a part lies in the flat arrays. Within the base its vectors (biases, norm weights) come first, then its
// matrices.
struct PartLayout {
  Index offset = 0, vectors = 0, matrices = 0;
  Index adapter_offset = 0, adapter = 0;
  std::size_t first_parameter = 0, parameters = 0;  // of the base layout

  Index size() const { return vectors + matrices; }
};

// The memory of one part. Gradients are accumulated, in fp32; a null one is not computed.
struct PartMemory {
  const float* vectors = nullptr;
  WeightMatrix matrices;
  const float* adapter = nullptr;  // null: the base model
  float* vectors_gradient = nullptr;
  float* matrices_gradient = nullptr;
  float* adapter_gradient = nullptr;

  bool trains_base() const { return matrices_gradient != nullptr; }
};

class ModulationTable;  // model/modulation.hpp

// What a pass reads its parameters from, and adds their gradients to.
class Parameters {
 public:
  virtual ~Parameters() = default;

  // Memory of a part (numbers: DitLayout), good until the next Use of another. May gather it from other ranks, so all
  // ranks of a trainer group make the same calls.
  virtual PartMemory Use(int part) = 0;
  // Whether every part lies ready, and always at the same place: Use only tells where.
  virtual bool InPlace() const { return false; }
  // Backward has added all of a part's gradient.
  virtual void GradientDone(int /*part*/) {}

  // Set where the modulation is frozen and its outputs are known: its parts are then never used.
  const ModulationTable* modulation = nullptr;
  float lora_scale = 0;  // alpha / r
};

}  // namespace spotlight
