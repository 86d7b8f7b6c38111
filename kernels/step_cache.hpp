// What reuse of earlier denoising steps does to rows [R, d] of the image stream (model/step_cache.hpp).
#pragma once

#include <cstdint>

namespace spotlight {

// sums [R, 2]: of each row the sum of |x - last| and the sum of |last|, each in a fixed order.
void RowChanges(std::int64_t rows, std::int64_t width, const float* x, const float* last, float* sums);

// difference = x - y, [size].
void Subtract(std::int64_t size, const float* x, const float* y, float* difference);

// Rows that went through the blocks take what came out and leave residual = computed - before; the others get before +
// residual. before, residual, after: [R, d]; `after` may be `before`. place [R]: a row's place in `computed`, -1: none.
void MergeRows(std::int64_t rows, std::int64_t width, const std::int64_t* place, const float* before,
               const float* computed, float* residual, float* after);

}  // namespace spotlight
