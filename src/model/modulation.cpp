#include "model/modulation.hpp"

#include "base/error.hpp"
#include "kernels/activation.hpp"

namespace spotlight {
namespace {

constexpr Index kSinusoid = 256;

}  // namespace

void TimeEmbedding::Forward(const DitLayout& layout, const PartMemory& time, std::span<const float> sigmas,
                            AdaptedLinearOps& ops) {
  const Index levels = static_cast<Index>(sigmas.size()), d = layout.config().width();
  Buffer sigma(levels);
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
                                 const std::vector<float>& sigmas) {
  std::vector<float> levels;
  for (const float sigma : sigmas) {
    if (rows_.emplace(sigma, static_cast<int>(levels.size())).second) levels.push_back(sigma);
  }
  const Index count = size(), d = layout.config().width();
  AdaptedLinearOps ops;
  TimeEmbedding embedding;
  WeightStorage part(layout, precision);
  part.Load(weights, layout.time_part(), layout.time_part() + 1);
  embedding.Forward(layout, part.Part(layout.time_part()), levels, ops);
  final_.Resize(count * 2 * d);
  ops.Forward(layout.norm_out, part.Part(layout.time_part()), 0, count, embedding.temb_act.data(), final_.data());
  for (int i = 0; i < layout.config().num_layers; ++i) {
    const int number = layout.modulation_part(i);
    part.Load(weights, number, number + 1);
    const BlockLayout& block = layout.blocks[static_cast<std::size_t>(i)];
    const auto compute = [&](const AdaptedLinear& modulation) {
      Buffer rows(count * 6 * d);
      ops.Forward(modulation, part.Part(number), 0, count, embedding.temb_act.data(), rows.data());
      return rows;
    };
    image_.push_back(compute(block.image.modulation));
    text_.push_back(compute(block.text.modulation));
  }
}

int ModulationTable::Row(float sigma) const {
  const auto found = rows_.find(sigma);
  SPOTLIGHT_REQUIRE(found != rows_.end(), "sigma " + std::to_string(sigma) + " is not in the modulation table");
  return found->second;
}

const float* ModulationTable::Block(int block, Stream stream) const {
  return (stream == Stream::kText ? text_ : image_)[static_cast<std::size_t>(block)].data();
}

}  // namespace spotlight
