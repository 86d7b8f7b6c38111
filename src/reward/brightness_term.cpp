// Mean luminance of the image (ITU-R BT.709 weights on the values as they are): a reward without any dependency, whose
// optimum is obvious, to see whether a run learns at all.
#include <cmath>

#include "reward/reward_term.hpp"

namespace spotlight {
namespace {

// Values are clamped to [0, 1]; NaN counts as 0. An empty image scores 0.
double Brightness(const RewardInput& input) {
  constexpr double kWeights[3] = {0.2126, 0.7152, 0.0722};
  const std::vector<float>& rgb = input.image.rgb;
  if (rgb.empty()) return 0;
  double sum = 0;
  for (std::size_t i = 0; i < rgb.size(); ++i) sum += kWeights[i % 3] * std::fmin(std::fmax(rgb[i], 0.0f), 1.0f);
  return sum / (static_cast<double>(rgb.size()) / 3);
}

}  // namespace

std::vector<RewardTerm> BrightnessTerms() {
  return {
      {.name = "brightness", .description = "mean luminance, 0 to 1; a test of the machinery", .score = Brightness}};
}

}  // namespace spotlight
