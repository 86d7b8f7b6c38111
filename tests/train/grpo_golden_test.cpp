// One GRPO micro-batch against the golden vectors: guided velocity, step, log-prob, ratio, loss, and
// the LoRA gradients through both guidance passes.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "kernels/sde_step.hpp"
#include "model/guided_velocity.hpp"
#include "model/model_weights.hpp"
#include "rollout/schedule.hpp"
#include "tests/model/golden.hpp"
#include "train/grpo.hpp"

namespace spotlight {
namespace {

TEST(GrpoGolden, StepAndGradients) {
  const std::string dir = GoldenDir();
  if (!InGoldenSet(dir + "/grpo_step.safetensors")) return;
  const SafetensorsFile file(dir + "/grpo_step.safetensors");
  const GoldenModel model = LoadGoldenLora();
  const auto& layout = model.layout;
  const std::vector<float>& adapter = model.adapter;
  const std::vector<float> shape = file.Read("img_shapes").data;
  const ImageShape image_shape{static_cast<int>(shape[0]), static_cast<int>(shape[1]), static_cast<int>(shape[2])};
  const ModelWeights weights(layout, model.source, Precision::kFp32, {});
  Buffer trained(static_cast<Index>(adapter.size())), gradient(trained.size());
  trained.CopyFromHost(adapter);
  gradient.Zero();

  const HostTensor x = file.Read("x"), positive = file.Read("prompt_embeds"),
                   negative = file.Read("negative_prompt_embeds");
  const Index batch = x.shape[0], n = static_cast<Index>(x.data.size()) / batch;
  const std::vector<float> sigmas = file.Read("sigmas").data;
  const std::size_t index = static_cast<std::size_t>(file.Read("step_index").data[0]);
  const double a = file.Read("noise_level").data[0], clip = file.Read("clip_range").data[0];
  const StepParameters step = FlowSdeStep(sigmas[index], sigmas[index + 1], sigmas[1], a);

  // The set has one negative prompt a row, all alike or not: one guided pass a row with its own.
  std::vector<float> v_all, mean_all, log_prob_all;
  double loss = 0;
  const std::vector<float> x_next = file.Read("x_next").data, old = file.Read("old_logprob").data;
  const std::vector<float> advantages = file.Read("advantages").data, ratio = file.Read("ratio").data;
  const std::vector<float> golden_log_prob = file.Read("logprob").data;
  const Index positive_row = static_cast<Index>(positive.data.size()) / batch;
  const Index negative_row = static_cast<Index>(negative.data.size()) / batch;
  for (Index b = 0; b < batch; ++b) {
    const auto text = positive.data.begin() + b * positive_row,
               unconditional = negative.data.begin() + b * negative_row;
    const TextCondition condition{positive.shape[1], {text, text + positive_row}};
    GuidedVelocity velocity(layout, file.Read("cfg_scale").data[0],
                            {negative.shape[1], {unconditional, unconditional + negative_row}}, false);
    Buffer latents(n), v(n), next(n), dv(n), log_prob(1), dlog_prob(1), dkl(1);
    latents.CopyFromHost(
        std::span<const float>(x.data).subspan(static_cast<std::size_t>(b * n), static_cast<std::size_t>(n)));
    next.CopyFromHost(
        std::span<const float>(x_next).subspan(static_cast<std::size_t>(b * n), static_cast<std::size_t>(n)));
    const std::unique_ptr<Parameters> parameters = weights.WithAdapter(trained.data(), gradient.data());
    const StepCoefficients coefficients = step.Rounded();
    velocity.SetTexts(*parameters, {&condition}, b == 1);  // projected beforehand or not: the same
    velocity.Forward(*parameters, {image_shape, latents.data(), {coefficients.sigma}, {0}}, true, v.data());
    LogProb(1, n, &coefficients, latents.data(), v.data(), next.data(), log_prob.data());
    std::vector<float> host(static_cast<std::size_t>(n)), lp(1);
    v.CopyToHost(host);
    log_prob.CopyToHost(lp);
    for (Index i = 0; i < n; ++i) {
      v_all.push_back(host[static_cast<std::size_t>(i)]);
      mean_all.push_back(
          static_cast<float>(step.c_x * x.data[static_cast<std::size_t>(b * n + i)] + step.c_v * v_all.back()));
    }
    const std::size_t row = static_cast<std::size_t>(b);
    EXPECT_NEAR(lp[0], golden_log_prob[row], 3e-6);
    const PairLoss pair = ClippedObjective(lp[0], old[row], advantages[row], clip);
    EXPECT_NEAR(pair.ratio, ratio[row], 3e-6);
    loss += pair.loss / static_cast<double>(batch);
    const std::vector<float> dlp = {static_cast<float>(pair.dlog_prob / static_cast<double>(batch))}, zero = {0.0f};
    dlog_prob.CopyFromHost(dlp);
    dkl.CopyFromHost(zero);
    LogProbBackward(1, n, &coefficients, latents.data(), v.data(), next.data(), nullptr, dlog_prob.data(), dkl.data(),
                    dv.data());
    velocity.Backward(*parameters, dv.data());
  }
  EXPECT_CLOSE(v_all, file.Read("v").data, 4e-5, 5e-5, "v");
  EXPECT_CLOSE(mean_all, file.Read("mean").data, 4e-5, 5e-5, "mean");
  EXPECT_NEAR(loss, file.Read("loss").data[0], 3e-6);
  std::vector<float> all(adapter.size());
  gradient.CopyToHost(all);
  int compared = 0;
  for (const Parameter& parameter : layout->adapter().parameters()) {
    const auto begin = all.begin() + parameter.offset;
    const std::vector<float> ours(begin, begin + parameter.size);
    const std::vector<float> golden = file.Read("grad.transformer." + parameter.name).data;
    if (std::all_of(golden.begin(), golden.end(), [](float g) { return g == 0; })) {
      for (const float g : ours) EXPECT_LE(std::abs(g), 1e-7) << parameter.name;
    } else {
      EXPECT_CLOSE(ours, golden, 2e-4, 6e-4, parameter.name);
      ++compared;
    }
  }
  EXPECT_GT(compared, 20);
}

}  // namespace
}  // namespace spotlight
