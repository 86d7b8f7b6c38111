#include "model/modulation.hpp"

#include <functional>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "kernels/activation.hpp"
#include "kernels/block_copy.hpp"

namespace spotlight {
namespace {

constexpr Index kSinusoid = 256;

// Values of a table of `levels` before a block's rows, image before text; of one block more: before the final rows.
Index RowsOffset(int block, Stream stream, Index levels, Index width) {
  return (2 * block + (stream == Stream::kText ? 1 : 0)) * levels * 6 * width;
}

// In the node's memory. A table of other levels, as another kind of command needs, has another name.
std::string NameOf(Precision precision, const std::vector<float>& levels) {
  const std::string_view bytes(reinterpret_cast<const char*>(levels.data()), levels.size() * sizeof(float));
  std::string name = precision == Precision::kBf16 ? "table-bf16-" : "table-fp32-";
  name += std::to_string(std::hash<std::string_view>()(bytes));
  return name;
}

}  // namespace

void TimeEmbedding::Forward(const DitLayout& layout, const PartMemory& time, std::span<const float> sigmas,
                            AdaptedLinearOps& ops) {
  const Index levels = static_cast<Index>(sigmas.size()), d = layout.config().width();
  sigma.Resize(levels);
  sigma.CopyFromHost(sigmas);
  sinusoid.Resize(levels * kSinusoid);
  for (Buffer* buffer : {&time_hidden, &time_act, &temb, &temb_act}) buffer->Resize(levels * d);
  TimeSinusoid(levels, sigma.data(), sinusoid.data());
  ops.Forward(layout.time_in, time, 0, levels, sinusoid.data(), time_hidden.data());
  SiluForward(levels * d, time_hidden.data(), time_act.data());
  ops.Forward(layout.time_out, time, 0, levels, time_act.data(), temb.data());
  SiluForward(levels * d, temb.data(), temb_act.data());
}

ModulationTable::ModulationTable(const DitLayout& layout, const TensorSource& weights, Precision precision,
                                 const std::vector<float>& sigmas, NodeMemory& node)
    : width_(layout.config().width()), blocks_(layout.config().num_layers) {
  std::vector<float> levels;
  for (const float sigma : sigmas) {
    if (rows_.emplace(sigma, static_cast<int>(levels.size())).second) levels.push_back(sigma);
  }
  const auto count = static_cast<std::size_t>(Offset(blocks_, Stream::kImage) + size() * 2 * width_);
  const auto floats = [&](std::span<std::byte> memory) {
    return std::span(reinterpret_cast<float*>(memory.data()), count);
  };
  blob_ = node.Get(NameOf(precision, levels), count * sizeof(float), [&](std::span<std::byte> memory) {
    Compute(layout, weights, precision, levels, floats(memory).data());
  });
  values_ = Buffer::Reading(floats(blob_.bytes()));
}

void ModulationTable::Compute(const DitLayout& layout, const TensorSource& weights, Precision precision,
                              std::span<const float> levels, float* values) const {
  AdaptedLinearOps ops;
  TimeEmbedding embedding;
  WeightStorage part(layout, precision);
  const auto compute = [&](const AdaptedLinear& modulation, int number, Index offset) {
    Buffer result(size() * modulation.out);
    ops.Forward(modulation, part.Part(number), 0, size(), embedding.temb_act.data(), result.data());
    result.CopyToHost({values + offset, static_cast<std::size_t>(result.size())});
  };
  part.Load(weights, layout.time_part(), layout.time_part() + 1);
  embedding.Forward(layout, part.Part(layout.time_part()), levels, ops);
  compute(layout.norm_out, layout.time_part(), Offset(blocks_, Stream::kImage));
  for (int i = 0; i < blocks_; ++i) {
    const int number = layout.modulation_part(i);
    part.Load(weights, number, number + 1);
    const BlockLayout& block = layout.blocks[static_cast<std::size_t>(i)];
    compute(block.image.modulation, number, Offset(i, Stream::kImage));
    compute(block.text.modulation, number, Offset(i, Stream::kText));
  }
}

int ModulationTable::Row(float sigma) const {
  const auto found = rows_.find(sigma);
  SPOTLIGHT_REQUIRE(found != rows_.end(), "sigma " + std::to_string(sigma) + " is not in the modulation table");
  return found->second;
}

Index ModulationTable::Offset(int block, Stream stream) const { return RowsOffset(block, stream, size(), width_); }

const float* ModulationTable::Block(int block, Stream stream) const { return values_.data() + Offset(block, stream); }
const float* ModulationTable::Final() const { return values_.data() + Offset(blocks_, Stream::kImage); }

void PassModulation::Gather(const DitLayout& layout, const ModulationTable& table, const std::vector<float>& levels) {
  width_ = layout.config().width();
  blocks_ = layout.config().num_layers;
  levels_ = static_cast<Index>(levels.size());
  const float* first = table.Block(0, Stream::kImage);
  std::vector<BlockCopy> copies;
  Index to = 0;
  const auto rows = [&](const float* from, Index size) {
    for (const float level : levels) {
      copies.push_back({from - first + table.Row(level) * size, to, 1, size, 0, 0});
      to += size;
    }
  };
  for (int block = 0; block < blocks_; ++block) {
    for (const Stream stream : {Stream::kImage, Stream::kText}) rows(table.Block(block, stream), 6 * width_);
  }
  rows(table.Final(), 2 * width_);
  values_.Resize(to);
  CopyBlocks(copies, first, values_.data());
}

const float* PassModulation::Block(int block, Stream stream) const {
  return values_.data() + RowsOffset(block, stream, levels_, width_);
}
const float* PassModulation::Final() const { return Block(blocks_, Stream::kImage); }

}  // namespace spotlight
