// What the tests of the tensor store share: small sizes, and commits whose content follows from request and step, so
// that a mixture of two shows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/random.hpp"
#include "io/tensor_store.hpp"
#include "io_test.hpp"

namespace spotlight {

constexpr int kSteps = 6;  // of a request
constexpr std::uint32_t kWindowBegin = 2, kWindowEnd = 4;

inline TensorStore::Options StoreOptions(const std::string& path, Shape latent = {6, 4}) {
  return {.path = path, .run = "test", .sizes = {.latent = std::move(latent), .window = 2, .terms = 3, .slots = 4}};
}

inline Request StoreRequest(std::uint32_t prompt, RequestKind kind = RequestKind::kRollout,
                            std::uint32_t iteration = 1) {
  return {.id = 77,
          .kind = kind,
          .iteration = iteration,
          .prompt_index = prompt,
          .seed = (1ull << 40) + prompt,
          .weight_version = iteration,
          .window_begin = kWindowBegin,
          .window_end = kWindowEnd,
          .real_steps = kind == RequestKind::kExplore ? 2U : 0U,
          .epoch = 5};
}

// [S, C] of a request after `step` steps.
inline std::vector<float> StoreLatents(const Request& request, std::uint32_t step, std::size_t floats) {
  const std::uint64_t key =
      StreamKey({request.iteration, static_cast<std::uint64_t>(request.kind), request.prompt_index, step});
  std::vector<float> values(floats);
  for (std::size_t i = 0; i < floats; ++i) values[i] = static_cast<float>((key + i * 40503) % 16777213);
  return values;
}

inline DenoiseState StoreState(const Request& request, std::uint32_t steps, std::size_t floats) {
  DenoiseState state{.steps = steps, .latents = StoreLatents(request, steps, floats)};
  if (request.kind != RequestKind::kRollout) return state;
  for (std::uint32_t step = kWindowBegin; step < std::min(steps, kWindowEnd); ++step) {
    const std::vector<float> row = StoreLatents(request, step, floats);
    state.trajectory.insert(state.trajectory.end(), row.begin(), row.end());
    state.log_probs.push_back(-1.0f / static_cast<float>(request.prompt_index + step + 1));
  }
  if (steps >= kWindowEnd) {
    const std::vector<float> row = StoreLatents(request, kWindowEnd, floats);
    state.trajectory.insert(state.trajectory.end(), row.begin(), row.end());
  }
  return state;
}

inline Sample StoreSample(const Request& request, std::size_t floats) {
  DenoiseState state = StoreState(request, kSteps, floats);
  Sample sample;
  sample.request = request;
  sample.rank = 3 + request.prompt_index;
  sample.reward = 0.1 * request.prompt_index;
  sample.terms = {0.1, -1e-300, 1.0 / (1 + request.prompt_index)};
  sample.latents = std::move(state.trajectory);
  sample.log_probs = std::move(state.log_probs);
  for (std::size_t i = 0; i < sample.log_probs.size(); ++i) {
    sample.steps.push_back({.sigma = 0.5f, .c_x = static_cast<float>(i), .tau = 0.25f});
  }
  return sample;
}

inline void ExpectSame(const DenoiseState& a, const DenoiseState& b) {
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.latents, b.latents);
  EXPECT_EQ(a.trajectory, b.trajectory);
  EXPECT_EQ(a.log_probs, b.log_probs);
}

inline void ExpectSame(const Sample& a, const Sample& b) {
  EXPECT_EQ(a.request.kind, b.request.kind);
  EXPECT_EQ(a.request.iteration, b.request.iteration);
  EXPECT_EQ(a.request.prompt_index, b.request.prompt_index);
  EXPECT_EQ(a.request.seed, b.request.seed);
  EXPECT_EQ(a.request.weight_version, b.request.weight_version);
  EXPECT_EQ(a.request.window_begin, b.request.window_begin);
  EXPECT_EQ(a.request.window_end, b.request.window_end);
  EXPECT_EQ(a.request.real_steps, b.request.real_steps);
  EXPECT_EQ(a.rank, b.rank);
  EXPECT_EQ(a.reward, b.reward);
  EXPECT_EQ(a.terms, b.terms);
  EXPECT_EQ(a.latents, b.latents);
  EXPECT_EQ(a.log_probs, b.log_probs);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].sigma, b.steps[i].sigma);
    EXPECT_EQ(a.steps[i].c_x, b.steps[i].c_x);
    EXPECT_EQ(a.steps[i].tau, b.steps[i].tau);
  }
}

}  // namespace spotlight
