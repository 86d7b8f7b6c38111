// Packing, guidance and the whole guided pipeline against the golden vectors.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/guidance.hpp"
#include "kernels/latents.hpp"
#include "kernels/sde_step.hpp"
#include "model/guided_velocity.hpp"
#include "model/qwen_vae.hpp"
#include "model/weight_storage.hpp"
#include "rollout/schedule.hpp"
#include "tests/model/golden.hpp"

namespace spotlight {
namespace {

TEST(PackGolden, BothWays) {
  const std::string path = GoldenDir() + "/pack_cfg.safetensors";
  if (!InGoldenSet(path)) return;
  const SafetensorsFile file(path);
  const HostTensor latents = file.Read("pack.latents"), packed = file.Read("pack.packed");
  const Index batch = latents.shape[0], channels = latents.shape[1], h = latents.shape[2] / 2, w = latents.shape[3] / 2;
  std::vector<float> out(latents.data.size());
  PackLatents(batch, channels, h, w, latents.data.data(), out.data());
  EXPECT_EQ(out, packed.data);
  UnpackLatents(batch, channels, h, w, packed.data.data(), out.data());
  EXPECT_EQ(out, latents.data);
}

TEST(GuidanceGolden, EveryScale) {
  const std::string path = GoldenDir() + "/pack_cfg.safetensors";
  if (!InGoldenSet(path)) return;
  const SafetensorsFile file(path);
  const HostTensor cond = file.Read("cfg.cond"), uncond = file.Read("cfg.uncond");
  const Index channels = cond.shape.back(), size = static_cast<Index>(cond.data.size());
  std::vector<float> pair = cond.data;
  pair.insert(pair.end(), uncond.data.begin(), uncond.data.end());
  int scales = 0;
  for (const std::string& name : file.names()) {
    if (!name.ends_with(".output") || !name.starts_with("cfg.scale")) continue;
    const float scale = std::stof(name.substr(std::string("cfg.scale").size()));
    std::vector<float> v(cond.data.size());
    GuidanceForward(1, size, channels, scale, pair.data(), v.data());
    EXPECT_CLOSE(v, file.Read(name).data, 1e-6, 2e-6, name);
    ++scales;
  }
  EXPECT_GE(scales, 1);
}

// Guided ODE steps of the whole model: latents after each, and what the decoder makes of the last.
TEST(PipelineGolden, LatentsAfterEachStepAndImage) {
  const std::string dir = GoldenDir();
  if (!InGoldenSet(dir + "/pipeline.safetensors")) return;
  const SafetensorsFile file(dir + "/pipeline.safetensors");
  const GoldenModel model = LoadGoldenModel(GoldenSpec().at("pipeline").at("transformer"));
  const auto& layout = model.layout;
  const std::vector<float>& weights = model.weights;
  const HostTensor positive = file.Read("prompt_embeds"), negative = file.Read("negative_prompt_embeds");
  const TextCondition condition{positive.shape[1], positive.data};
  GuidedVelocity velocity(layout, file.Read("true_cfg_scale").data[0], {negative.shape[1], negative.data}, false);
  const HostTensor start = file.Read("latents");
  const Index n = static_cast<Index>(start.data.size());
  Buffer base(static_cast<Index>(weights.size())), x(n), v(n), next(n);
  base.CopyFromHost(weights);
  x.CopyFromHost(start.data);
  FlatParameters parameters(*layout, base.data());
  velocity.SetTexts(parameters, {&condition}, true);
  const std::vector<float> pixels = file.Read("height_width").data;
  const ImageShape shape{1, static_cast<int>(pixels[0]) / 16, static_cast<int>(pixels[1]) / 16};
  const int count = static_cast<int>(file.Read("steps").data[0]);
  const std::vector<double> sigmas = QwenSigmas(ReadSchedulerConfig(dir + "/scheduler"), count, shape.tokens());
  for (int i = 0; i < count; ++i) {
    const StepCoefficients step =
        OdeStep(sigmas[static_cast<std::size_t>(i)], sigmas[static_cast<std::size_t>(i) + 1]).Rounded();
    velocity.Forward(parameters, {shape, x.data(), {step.sigma}, {0}}, false, v.data());
    SdeStep(1, n, &step, x.data(), v.data(), nullptr, next.data());
    std::swap(x, next);
    std::vector<float> host(static_cast<std::size_t>(n));
    x.CopyToHost(host);
    EXPECT_CLOSE(host, file.Read(fmt::format("latents_after_step{}", i)).data, 1e-5, 2e-5, i);
  }
  const std::string vae = dir + "/vae";
  if (!InGoldenSet(vae + "/diffusion_pytorch_model.safetensors")) return;
  std::vector<float> packed(static_cast<std::size_t>(n));
  x.CopyToHost(packed);
  const QwenVae decoder(ReadVaeConfig(vae), WeightMapSource(ReadWeights(vae), vae));
  const Image image = decoder.Decode(packed, shape.height, shape.width);
  const HostTensor golden = file.Read("image");  // channels first
  ASSERT_EQ(golden.shape, (Shape{1, 3, image.height, image.width}));
  const std::size_t size = static_cast<std::size_t>(image.height) * static_cast<std::size_t>(image.width);
  std::vector<float> turned(3 * size);
  for (std::size_t i = 0; i < turned.size(); ++i) turned[i] = image.rgb[i % size * 3 + i / size];
  EXPECT_CLOSE(turned, golden.data, 1e-5, 3e-5, "image");
}

}  // namespace
}  // namespace spotlight
