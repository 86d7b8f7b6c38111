// Finds the shapes of the tiny-shapes world in an image: the deterministic detector behind the GenEval reward.
//
//   1. foreground: the largest channel distance from the background exceeds 0.30
//   2. objects: 4-connected components of at least 40 pixels, 8 wide and 8 high
//   3. coverage: distance / its 90th percentile in the object, clipped to 1, in the object's box, resampled bilinearly
//      to 12x12
//   4. class: the template t with the largest soft IoU, sum min(t, c) / sum max(t, c) (that is the confidence), if it
//      is at least 0.70 and the box's sides differ by at most a factor 1.6; else unknown
//   5. colour: the palette entry that is nearest to at least 60 % of the pixels; else unclear
// Templates come from a file because they must show the sprites as the model's own decoder renders them: with clean
// sprites alone a quarter of correct but decoded images is misjudged. Arithmetic is fp32 in a fixed order.
#pragma once

#include <string>
#include <vector>

#include "base/image.hpp"
#include "base/tensor.hpp"
#include "reward/detection.hpp"

namespace spotlight {

class ShapeDetector {
 public:
  // `weights`: the tensors of a detector file: "templates" [n, 144], 12x12 coverage each, and "class" [n], index into
  // ShapeNames() of each. Throws UserError naming `path` if they are missing or do not fit.
  ShapeDetector(const WeightMap& weights, const std::string& path);

  // Objects in the order of their first pixel, row by row. `image` may have any size. Values are clamped to [0, 1];
  // a pixel with a NaN is background. Safe to call from several threads.
  std::vector<Detection> Detect(const Image& image) const;

 private:
  std::vector<float> templates_;       // [n, 144]
  std::vector<int> template_classes_;  // [n]
};

}  // namespace spotlight
