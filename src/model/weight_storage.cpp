#include "model/weight_storage.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/operations_kokkos.hpp"

namespace spotlight {
namespace {

float LoraScale(const DitLayout& layout) {
  return layout.lora().rank == 0 ? 0.0f : static_cast<float>(layout.lora().alpha / layout.lora().rank);
}

}  // namespace

Index WeightStorage::VectorsBefore(int part) const {
  Index sum = 0;
  for (int i = first_; i < part; ++i) sum += layout_.parts()[static_cast<std::size_t>(i)].vectors;
  return sum;
}

Index WeightStorage::MatricesBefore(int part) const {
  Index sum = 0;
  for (int i = first_; i < part; ++i) sum += layout_.parts()[static_cast<std::size_t>(i)].matrices;
  return sum;
}

// Rounded up: the matrices that follow are aligned as a buffer's values are.
std::size_t WeightStorage::BytesOfVectors() const {
  return (static_cast<std::size_t>(VectorsBefore(last_)) * sizeof(float) + 63) / 64 * 64;
}

std::size_t WeightStorage::BytesOfMatrices() const {
  const std::size_t each = precision_ == Precision::kFp32 ? sizeof(float) : sizeof(Bfloat16);
  return static_cast<std::size_t>(MatricesBefore(last_)) * each;
}

// memory: [vectors | matrices].
void WeightStorage::View(std::span<std::byte> memory, int first, int last) {
  first_ = first;
  last_ = last;
  SPOTLIGHT_REQUIRE(memory.size() == BytesOfVectors() + BytesOfMatrices(), "memory of other parts");
  std::byte* matrices = memory.data() + BytesOfVectors();
  const auto vector_count = static_cast<std::size_t>(VectorsBefore(last));
  const auto matrix_count = static_cast<std::size_t>(MatricesBefore(last));
  vectors_ = Buffer::ViewOf({reinterpret_cast<float*>(memory.data()), vector_count});
  if (precision_ == Precision::kFp32) {
    matrices_ = Buffer::ViewOf({reinterpret_cast<float*>(matrices), matrix_count});
  } else {
    matrices_bf16_ = Bfloat16Buffer::ViewOf({reinterpret_cast<Bfloat16*>(matrices), matrix_count});
  }
}

void WeightStorage::Share(NodeMemory& node, const std::string& key, int first, int last,
                          const std::function<void(WeightStorage&)>& fill) {
  first_ = first;
  last_ = last;
  NodeBlob blob = node.Get(key, BytesOfVectors() + BytesOfMatrices(), [&](std::span<std::byte> memory) {
    WeightStorage filled(layout_, precision_);  // apart, so that this one never views memory that was given up
    filled.View(memory, first, last);
    fill(filled);
  });
  View(blob.bytes(), first, last);
  blob_ = std::move(blob);
  vectors_ = Buffer::Reading({vectors_.data(), static_cast<std::size_t>(vectors_.size())});
  matrices_ = Buffer::Reading({matrices_.data(), static_cast<std::size_t>(matrices_.size())});
  matrices_bf16_ = Bfloat16Buffer::Reading({matrices_bf16_.data(), static_cast<std::size_t>(matrices_bf16_.size())});
}

void WeightStorage::Allocate(int first, int last) {
  first_ = first;
  last_ = last;
  vectors_.Resize(VectorsBefore(last));
  if (precision_ == Precision::kFp32) matrices_.Resize(MatricesBefore(last));
  if (precision_ == Precision::kBf16) matrices_bf16_.Resize(MatricesBefore(last));
}

void WeightStorage::Load(const TensorSource& source, int first, int last) {
  Allocate(first, last);
  for (int number = first; number < last; ++number) {
    const PartLayout& part = layout_.parts()[static_cast<std::size_t>(number)];
    const Index vectors = VectorsBefore(number) - part.offset;
    const Index matrices = MatricesBefore(number) - part.offset - part.vectors;
    for (std::size_t i = 0; i < part.parameters; ++i) {
      const Parameter& parameter = layout_.base().parameters()[part.first_parameter + i];
      const auto read = [&](auto out) { source.Read(parameter.name, out); };
      if (parameter.offset < part.offset + part.vectors) {
        vectors_.Fill(vectors + parameter.offset, parameter.size, read);
      } else if (precision_ == Precision::kFp32) {
        matrices_.Fill(matrices + parameter.offset, parameter.size, read);
      } else {
        matrices_bf16_.Fill(matrices + parameter.offset, parameter.size, read);
      }
    }
  }
}

void WeightStorage::Assign(std::span<const float> values) {
  SPOTLIGHT_REQUIRE(static_cast<Index>(values.size()) == layout_.base().size(), "weights of another layout");
  const int parts = static_cast<int>(layout_.parts().size());
  Allocate(0, parts);
  for (int i = 0; i < parts; ++i) {
    const PartLayout& part = layout_.parts()[static_cast<std::size_t>(i)];
    AssignPart(i, values.subspan(static_cast<std::size_t>(part.offset), static_cast<std::size_t>(part.size())));
  }
}

void WeightStorage::AssignPart(int number, std::span<const float> values) {
  const PartLayout& part = layout_.parts()[static_cast<std::size_t>(number)];
  SPOTLIGHT_REQUIRE(static_cast<Index>(values.size()) == part.size(), "values of another part");
  const float* matrices = values.data() + part.vectors;
  const auto copy = [](const float* from) {
    return [from](std::span<float> to) { std::copy_n(from, to.size(), to.begin()); };
  };
  vectors_.Fill(VectorsBefore(number), part.vectors, copy(values.data()));
  if (precision_ == Precision::kFp32) {
    matrices_.Fill(MatricesBefore(number), part.matrices, copy(matrices));
  } else {
    matrices_bf16_.Fill(MatricesBefore(number), part.matrices,
                        [&](std::span<Bfloat16> to) { kokkos::RoundToBfloat16(part.matrices, matrices, to.data()); });
  }
}

WeightStorage::Target WeightStorage::Writable(int number) {
  SPOTLIGHT_REQUIRE(Has(number), "a part that is not stored");
  const PartLayout& part = layout_.parts()[static_cast<std::size_t>(number)];
  const auto vectors = static_cast<std::size_t>(part.vectors), matrices = static_cast<std::size_t>(part.matrices);
  Target target{{vectors_.data() + VectorsBefore(number), vectors}, {}, {}};
  if (precision_ == Precision::kFp32) target.matrices = {matrices_.data() + MatricesBefore(number), matrices};
  if (precision_ == Precision::kBf16) target.matrices_bf16 = {matrices_bf16_.data() + MatricesBefore(number), matrices};
  return target;
}

PartMemory WeightStorage::Part(int part) const {
  SPOTLIGHT_REQUIRE(Has(part), "a part that is not stored");
  const WeightMatrix matrices{precision_ == Precision::kFp32 ? matrices_.data() : nullptr,
                              precision_ == Precision::kBf16 ? matrices_bf16_.data() : nullptr};
  return {.vectors = vectors_.data() + VectorsBefore(part), .matrices = matrices + MatricesBefore(part)};
}

ResidentParameters::ResidentParameters(const DitLayout& layout, const WeightStorage& base, const float* adapter,
                                       float* adapter_gradient)
    : layout_(layout), base_(base), adapter_(adapter), adapter_gradient_(adapter_gradient) {
  lora_scale = LoraScale(layout);
}

PartMemory ResidentParameters::Use(int number) {
  PartMemory memory = base_.Part(number);
  const Index offset = layout_.parts()[static_cast<std::size_t>(number)].adapter_offset;
  if (adapter_ != nullptr) memory.adapter = adapter_ + offset;
  if (adapter_gradient_ != nullptr) memory.adapter_gradient = adapter_gradient_ + offset;
  return memory;
}

FlatParameters::FlatParameters(const DitLayout& layout, const float* base, float* base_gradient, const float* adapter,
                               float* adapter_gradient)
    : layout_(layout),
      base_(base),
      base_gradient_(base_gradient),
      adapter_(adapter),
      adapter_gradient_(adapter_gradient) {
  lora_scale = LoraScale(layout);
}

PartMemory FlatParameters::Use(int number) {
  const PartLayout& part = layout_.parts()[static_cast<std::size_t>(number)];
  PartMemory memory{.vectors = base_ + part.offset, .matrices = {.fp32 = base_ + part.offset + part.vectors}};
  if (adapter_ != nullptr) memory.adapter = adapter_ + part.adapter_offset;
  if (adapter_gradient_ != nullptr) memory.adapter_gradient = adapter_gradient_ + part.adapter_offset;
  if (base_gradient_ != nullptr) {
    memory.vectors_gradient = base_gradient_ + part.offset;
    memory.matrices_gradient = memory.vectors_gradient + part.vectors;
  }
  return memory;
}

}  // namespace spotlight
