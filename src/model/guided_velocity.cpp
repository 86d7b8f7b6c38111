#include "model/guided_velocity.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "kernels/guidance.hpp"

namespace spotlight {

GuidedVelocity::GuidedVelocity(const std::shared_ptr<const DitLayout>& layout, double guidance, TextCondition negative,
                               bool recompute)
    : guidance_(static_cast<float>(guidance)),
      negative_(std::move(negative)),
      recompute_(recompute),
      conditional_(layout),
      unconditional_(layout) {}

void GuidedVelocity::FillText(const std::vector<const TextCondition*>& conditions, Buffer& text) {
  const std::size_t size = conditions.front()->embedding.size();
  std::vector<float> host(size * conditions.size());
  for (std::size_t b = 0; b < conditions.size(); ++b) {
    SPOTLIGHT_REQUIRE(conditions[b]->embedding.size() == size, "conditions of one batch have one length");
    std::copy(conditions[b]->embedding.begin(), conditions[b]->embedding.end(),
              host.begin() + static_cast<Index>(b * size));
  }
  text.Resize(static_cast<Index>(host.size()));
  text.CopyFromHost(host);
}

void GuidedVelocity::Forward(const ParameterMemory& memory, const VelocityInput& input, bool keep, float* velocity) {
  SPOTLIGHT_REQUIRE(static_cast<Index>(input.conditions.size()) == input.batch && input.batch > 0,
                    "one condition each");
  FillText(input.conditions, text_);
  input_.batch = input.batch;
  input_.images = {input.image_shape};
  input_.text_tokens = input.conditions.front()->tokens;
  input_.image = input.latents;
  input_.text = text_.data();
  input_.levels = input.levels;
  input_.level_index = input.level_index;
  const DitOptions options{.keep = keep, .recompute = keep && recompute_, .last_text_branch = false};
  if (!guided()) {
    conditional_.Forward(memory, input_, options, velocity);
    return;
  }
  const TransformerConfig& config = layout().config();
  const Index channels = Index{1} * config.patch_size * config.patch_size * config.out_channels;
  const Index rows = input.batch * input.image_shape.tokens();
  FillText(std::vector<const TextCondition*>(static_cast<std::size_t>(input.batch), &negative_), negative_text_);
  negative_input_ = input_;
  negative_input_.text = negative_text_.data();
  negative_input_.text_tokens = negative_.tokens;
  v_cond_.Resize(rows * channels);
  v_uncond_.Resize(rows * channels);
  conditional_.Forward(memory, input_, options, v_cond_.data());
  unconditional_.Forward(memory, negative_input_, options, v_uncond_.data());
  GuidanceForward(rows, channels, guidance_, v_cond_.data(), v_uncond_.data(), velocity);
}

void GuidedVelocity::KeepSamples(const std::vector<Index>& kept) {
  const Index batch = input_.batch, places = static_cast<Index>(kept.size());
  for (Index to = 0; to < places; ++to) {
    const Index from = kept[static_cast<std::size_t>(to)];
    if (from == to) continue;
    SPOTLIGHT_REQUIRE(from >= places && from < batch, "a kept sample would be overwritten");
    conditional_.CopySample(batch, from, to);
    CopyRow(text_, batch, from, to);
    if (!guided()) continue;
    unconditional_.CopySample(batch, from, to);  // all negative texts are the same
    CopyRow(v_cond_, batch, from, to);
    CopyRow(v_uncond_, batch, from, to);
  }
  input_.batch = places;
  negative_input_.batch = places;
}

void GuidedVelocity::Backward(const ParameterMemory& memory, const float* dvelocity, float* dtext) {
  if (!guided()) {
    conditional_.Backward(memory, input_, dvelocity, {.image = nullptr, .text = dtext});
    return;
  }
  const TransformerConfig& config = layout().config();
  const Index channels = Index{1} * config.patch_size * config.patch_size * config.out_channels;
  const Index rows = input_.batch * input_.image_tokens();
  dv_cond_.Resize(rows * channels);
  dv_uncond_.Resize(rows * channels);
  GuidanceBackward(rows, channels, guidance_, v_cond_.data(), v_uncond_.data(), dvelocity, dv_cond_.data(),
                   dv_uncond_.data());
  conditional_.Backward(memory, input_, dv_cond_.data(), {.image = nullptr, .text = dtext});
  unconditional_.Backward(memory, negative_input_, dv_uncond_.data(), {});
}

}  // namespace spotlight
