// An RGB image in memory.
#pragma once

#include <vector>

namespace spotlight {

struct Image {
  int height = 0;
  int width = 0;
  std::vector<float> rgb;  // [height, width, 3] in [0, 1]
};

}  // namespace spotlight
