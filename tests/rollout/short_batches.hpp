// Batches of a few steps of the shipped tiny model, and the comparison of their results.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rollout/sampler.hpp"
#include "tests/rollout/shapes_model.hpp"

namespace spotlight {

// Exact; NaN differs from itself.
inline void ExpectSame(const std::vector<Denoised>& a, const std::vector<Denoised>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].latents, b[i].latents) << what;
    EXPECT_EQ(a[i].trajectory, b[i].trajectory) << what;
    EXPECT_EQ(a[i].log_probs, b[i].log_probs) << what;
  }
}

class ShortBatches : public ShapesModel {
 protected:
  ShortBatches() { config_.sampler.steps = 6; }

  // Of prompts and seeds of their own.
  static std::vector<Request> Requests(RequestKind kind, std::uint32_t count, std::uint32_t real_steps = 0) {
    std::vector<Request> requests;
    for (std::uint32_t i = 0; i < count; ++i) {
      requests.push_back({.kind = kind,
                          .prompt_index = i,
                          .seed = 3 + i,
                          .window_begin = 1,
                          .window_end = 4,
                          .real_steps = real_steps});
    }
    return requests;
  }
  Sampler MakeSampler() const { return {config_, SchedulerConfig{}, layout_, prompts_.conditions[3]}; }

  Config config_;
};

}  // namespace spotlight
