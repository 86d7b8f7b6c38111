// Which prompts an iteration trains on: a pure function of (run seed, iteration), so a resumed run draws the same.
//
// Each draw takes first a tag, with a chance proportional to its weight, then a prompt of that tag, all prompts of the
// tag alike. No prompt comes twice in an iteration; a tag that is used up leaves the draw.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/prompt.hpp"
#include "config/config.hpp"

namespace spotlight {

class PromptSampler {
 public:
  // tag_weights: relative chance of a tag; 1 for a tag that is not listed, 0: never drawn. An empty list makes every
  // prompt equally likely. Throws UserError (section prompts): a weight that is not a finite number >= 0, a tag listed
  // twice or that no prompt has, nothing to draw.
  PromptSampler(const std::vector<Prompt>& prompts, const std::vector<WeightedName>& tag_weights,
                std::uint64_t run_seed);

  // `count` different indices into the prompts, in the order drawn. Throws UserError if there are fewer.
  std::vector<int> Draw(std::uint32_t iteration, int count) const;

  // Prompts with a weight above 0.
  int drawable() const { return drawable_; }

 private:
  struct Tag {
    double weight;
    std::vector<int> prompts;
  };

  std::vector<Tag> tags_;  // weight > 0, by name
  std::uint64_t run_seed_;
  int drawable_ = 0;
};

// Name of the `index`-th noise stream (seed) of an iteration; unique over the run. (Which noise it stands for follows
// from base/random.hpp's NoiseKey, which has the run seed.)
inline std::uint64_t SeedName(std::uint32_t iteration, std::uint32_t index) {
  return (static_cast<std::uint64_t>(iteration) << 32) | index;
}

}  // namespace spotlight
