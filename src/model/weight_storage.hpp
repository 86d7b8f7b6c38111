// One copy of the base parameters, or of some parts of them, as passes read it: vectors in fp32, matrices in fp32 or
// rounded to bfloat16.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/node_memory.hpp"
#include "base/tensor_source.hpp"
#include "kernels/buffer.hpp"
#include "model/dit_layout.hpp"

namespace spotlight {

enum class Precision { kFp32, kBf16 };  // of the stored matrices; everything is computed in fp32

class WeightStorage {
 public:
  WeightStorage(const DitLayout& layout, Precision precision) : layout_(layout), precision_(precision) {}

  // Parts [first, last) get memory, which is kept if it is large enough; their values are undefined.
  void Allocate(int first, int last);
  // Allocate and read them, tensor by tensor, straight into place.
  void Load(const TensorSource& source, int first, int last);
  // Parts [first, last) as the blob `key` of `node`: one copy for its ranks, read-only. `fill` gets this storage to
  // write all of them, if no rank has them; it may not wait for ranks of the node.
  void Share(NodeMemory& node, const std::string& key, int first, int last,
             const std::function<void(WeightStorage&)>& fill);
  bool Intact() const { return blob_.Intact(); }  // what is shared has the checksum that it was written with
  // values [base().size()]: the flat base parameters.
  void Assign(std::span<const float> values);
  // One part from its flat values, vectors first.
  void AssignPart(int part, std::span<const float> values);

  PartMemory Part(int part) const;
  bool Has(int part) const { return part >= first_ && part < last_; }
  Precision precision() const { return precision_; }

  // Where a part's vectors and matrices are written, for what gathers them from other ranks. One matrix pointer is set.
  struct Target {
    std::span<float> vectors, matrices;
    std::span<Bfloat16> matrices_bf16;
  };
  Target Writable(int part);

 private:
  void View(std::span<std::byte> memory, int first, int last);
  std::size_t BytesOfVectors() const;
  std::size_t BytesOfMatrices() const;
  Index VectorsBefore(int part) const;
  Index MatricesBefore(int part) const;

  const DitLayout& layout_;
  Precision precision_;
  int first_ = 0, last_ = 0;
  NodeBlob blob_;  // what the buffers below view, unless they own their memory
  Buffer vectors_, matrices_;
  Bfloat16Buffer matrices_bf16_;
};

// Parameters that lie in memory as they are used: nothing is gathered.
class ResidentParameters : public Parameters {
 public:
  // adapter, adapter_gradient: flat adapter arrays; null: none. The storage must outlive this.
  ResidentParameters(const DitLayout& layout, const WeightStorage& base, const float* adapter = nullptr,
                     float* adapter_gradient = nullptr);
  PartMemory Use(int part) override;
  bool InPlace() const override { return true; }

 private:
  const DitLayout& layout_;
  const WeightStorage& base_;
  const float* adapter_;
  float* adapter_gradient_;
};

// Flat fp32 arrays, all parts: the plainest form. Any gradient may be null.
class FlatParameters : public Parameters {
 public:
  FlatParameters(const DitLayout& layout, const float* base, float* base_gradient = nullptr,
                 const float* adapter = nullptr, float* adapter_gradient = nullptr);
  PartMemory Use(int part) override;
  bool InPlace() const override { return true; }

 private:
  const DitLayout& layout_;
  const float* base_;
  float* base_gradient_;
  const float* adapter_;
  float* adapter_gradient_;
};

}  // namespace spotlight
