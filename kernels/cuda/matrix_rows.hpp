// Matrices [rows, columns], row-major with a stride between rows, as the files around cuBLASLt and cuDNN need them.
#pragma once

#include <cstdint>

#include "kernels/activations.hpp"

namespace spotlight::cuda {

// to [rows, columns], dense, = from rounded to nearest; row stride ld_from.
void RoundRows(std::int64_t rows, std::int64_t columns, const float* from, std::int64_t ld_from, Bfloat16* to);

// sums [columns] += sum over the rows of x, row stride ldx: blocks of 64 rows, added in order, so a column's bits
// depend on the number of rows alone.
void AddColumnSums(std::int64_t rows, std::int64_t columns, ConstActivations x, std::int64_t ldx, float* sums);

// y[r, c, 0 : channels] += from [rows, columns, channels], dense; y has the strides y_row and y_column.
void AddPixels(std::int64_t rows, std::int64_t columns, std::int64_t channels, const float* from, float* y,
               std::int64_t y_row, std::int64_t y_column);

}  // namespace spotlight::cuda
