// Schedules and steps against published tables and the golden vectors.
#include "rollout/schedule.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <vector>

#include "io/json_file.hpp"
#include "kernels/sde_step.hpp"
#include "tests/model/golden.hpp"

namespace spotlight {
namespace {

TEST(Schedule, LinearRunsFromOneToZero) {
  EXPECT_EQ(LinearSigmas(4), (std::vector<double>{1.0, 0.75, 0.5, 0.25, 0.0}));
}

// Tables of the published scheduler settings, float64.
TEST(Schedule, QwenTables) {
  const SchedulerConfig config;
  EXPECT_NEAR(DynamicShiftMu(config, 1024), 0.538710, 1e-6);
  EXPECT_NEAR(DynamicShiftMu(config, 6400), 0.809677, 1e-6);
  const std::vector<double> small = {1.0,      0.928970, 0.851485, 0.766624, 0.673281, 0.570117,
                                     0.455497, 0.327400, 0.183301, 0.020000, 0.0};
  const std::vector<double> large = {1.0,      0.942299, 0.877393, 0.803843, 0.719799, 0.622844,
                                     0.509754, 0.376136, 0.215843, 0.020000, 0.0};
  const std::vector<double> twenty = {1.0,    .96817, .93495, .90026, .86399, .82603, .78627,
                                      .74457, .70079, .65476, .60631, .55524, .50134, .44436,
                                      .38403, .32004, .25206, .17969, .10251, .02,    0.0};
  const auto expect = [](const std::vector<double>& sigmas, const std::vector<double>& table, double tolerance) {
    ASSERT_EQ(sigmas.size(), table.size());
    for (std::size_t i = 0; i < table.size(); ++i) EXPECT_NEAR(sigmas[i], table[i], tolerance) << i;
  };
  expect(QwenSigmas(config, 10, 1024), small, 6e-7);
  expect(QwenSigmas(config, 10, 6400), large, 6e-7);
  expect(QwenSigmas(config, 20, 1024), twenty, 6e-6);
}

TEST(ScheduleGolden, EveryTable) {
  const std::string path = GoldenDir() + "/scheduler.safetensors";
  if (!InGoldenSet(path)) return;
  const SafetensorsFile file(path);
  const SchedulerConfig config = ReadSchedulerConfig(GoldenDir() + "/scheduler");
  int tables = 0;
  for (const std::string& name : file.names()) {
    if (!name.ends_with(".sigmas")) continue;
    const std::string base = name.substr(0, name.size() - 7);
    const int steps = std::stoi(base.substr(base.find("_n") + 2));
    double mu = 0, tokens = 0;
    file.ReadDoubles(base + ".mu", {&mu, 1});
    file.ReadDoubles(base + ".seq_len", {&tokens, 1});
    EXPECT_NEAR(DynamicShiftMu(config, static_cast<Index>(tokens)), mu, 1e-12) << base;
    const std::vector<double> sigmas = QwenSigmas(config, steps, static_cast<Index>(tokens));
    const std::vector<float> expected = file.Read(name).data, timesteps = file.Read(base + ".timesteps").data;
    ASSERT_EQ(sigmas.size(), expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(sigmas[i], expected[i], 3e-7) << base << " " << i;
    for (std::size_t i = 0; i < timesteps.size(); ++i) EXPECT_NEAR(1000 * sigmas[i], timesteps[i], 3e-4) << base;
    ++tables;
  }
  EXPECT_GE(tables, 1);
  const std::vector<float> x = file.Read("euler.x").data, v = file.Read("euler.v").data;
  const double sigma = file.Read("euler.sigma").data[0], next = file.Read("euler.sigma_next").data[0];
  std::vector<float> x_next(x.size());
  const StepCoefficients step = OdeStep(sigma, next).Rounded();
  SdeStep(1, static_cast<Index>(x.size()), &step, x.data(), v.data(), nullptr, x_next.data());
  const std::vector<float> expected = file.Read("euler.x_next").data;
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(x_next[i], expected[i], 1e-6);
}

std::vector<double> Doubles(const SafetensorsFile& file, const std::string& name) {
  std::vector<double> values(static_cast<std::size_t>(NumElements(file.Info(name).shape)));
  file.ReadDoubles(name, values);
  return values;
}

TEST(SdeGolden, EveryCaseInDoubleAndInFloat) {
  const std::string path = GoldenDir() + "/sde.safetensors";
  if (!InGoldenSet(path)) return;
  const SafetensorsFile file(path);
  int cases = 0;
  for (const std::string& name : file.names()) {
    if (!name.ends_with(".sigma_next")) continue;
    const std::string c = name.substr(0, name.find('.')) + ".";
    const bool cps = Doubles(file, c + "kind")[0] == 1;
    const double sigma = Doubles(file, c + "sigma")[0], next = Doubles(file, c + "sigma_next")[0];
    const double second = Doubles(file, c + "sigma_max")[0], a = Doubles(file, c + "a")[0];
    const StepParameters step = cps ? CpsStep(sigma, next, a) : FlowSdeStep(sigma, next, second, a);
    const std::vector<double> x = Doubles(file, c + "x"), v = Doubles(file, c + "v"), z = Doubles(file, c + "noise");
    const Index batch = file.Info(c + "x").shape[0], n = static_cast<Index>(x.size()) / batch;
    std::vector<double> mean(x.size()), x_next(x.size()), log_prob(static_cast<std::size_t>(batch)), dv(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      mean[i] = step.c_x * x[i] + step.c_v * v[i];
      x_next[i] = mean[i] + step.tau * z[i];
      const std::size_t b = i / static_cast<std::size_t>(n);
      log_prob[b] += (-step.log_prob_scale * (x_next[i] - mean[i]) * (x_next[i] - mean[i]) + step.log_prob_constant) /
                     static_cast<double>(n);
      dv[i] = 2 * step.log_prob_scale * (x_next[i] - mean[i]) * step.c_v / static_cast<double>(n);
    }
    EXPECT_CLOSE(mean, Doubles(file, c + "mean"), 1e-12, 1e-12, c + "mean");
    EXPECT_CLOSE(x_next, Doubles(file, c + "x_next"), 1e-12, 1e-12, c + "x_next");
    EXPECT_CLOSE(log_prob, Doubles(file, c + "logprob"), 1e-12, 1e-12, c + "logprob");
    EXPECT_CLOSE(dv, Doubles(file, c + "dlogprob_dv"), 1e-12, 1e-12, c + "dlogprob_dv");

    const std::vector<StepCoefficients> coefficients(static_cast<std::size_t>(batch), step.Rounded());
    const std::vector<float> xf(x.begin(), x.end()), vf(v.begin(), v.end()), zf(z.begin(), z.end());
    std::vector<float> x_next_f(x.size()), log_prob_f(log_prob.size()), dv_f(x.size());
    SdeStep(batch, n, coefficients.data(), xf.data(), vf.data(), zf.data(), x_next_f.data());
    EXPECT_CLOSE(x_next_f, Doubles(file, c + "x_next"), 2e-6, 2e-6, c + "x_next, fp32");
    LogProb(batch, n, coefficients.data(), xf.data(), vf.data(), x_next_f.data(), log_prob_f.data());
    const std::vector<double> golden_log_prob = Doubles(file, c + "logprob");
    for (std::size_t b = 0; b < log_prob_f.size(); ++b) EXPECT_NEAR(log_prob_f[b], golden_log_prob[b], 1e-5) << c;
    const std::vector<float> one(log_prob_f.size(), 1.0f), zero(log_prob_f.size(), 0.0f);
    LogProbBackward(batch, n, coefficients.data(), xf.data(), vf.data(), x_next_f.data(), nullptr, one.data(),
                    zero.data(), dv_f.data());
    EXPECT_CLOSE(dv_f, Doubles(file, c + "dlogprob_dv"), 1e-4, 1e-4, c + "dlogprob_dv, fp32");
    ++cases;
  }
  EXPECT_GE(cases, 1);
}

TEST(Schedule, DanceIsFlowWithConstantDiffusion) {
  const StepParameters dance = DanceSdeStep(0.6, 0.5, 0.3);
  const double s = 0.3;
  EXPECT_NEAR(dance.c_x * 0.3 + dance.c_v * -0.2, 0.318350000, 1e-9);
  EXPECT_NEAR(dance.tau, s * std::sqrt(0.1), 1e-12);
}

TEST(Schedule, OnlyTheWindowIsStochastic) {
  SamplerConfig sampler;
  for (const auto noise : {SamplerConfig::Noise::kFlow, SamplerConfig::Noise::kDance, SamplerConfig::Noise::kCps}) {
    sampler.noise = noise;
    const std::vector<StepParameters> steps = ScheduleSteps(sampler, LinearSigmas(10), 2, 4);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(steps[static_cast<std::size_t>(i)].tau > 0, i == 2 || i == 3) << i;
  }
}

}  // namespace
}  // namespace spotlight
