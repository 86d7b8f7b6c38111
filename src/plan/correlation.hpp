// Rank correlation: do explored rewards order seeds as fresh rewards do?
#pragma once

#include <span>

namespace spotlight {

// Spearman's rho: Pearson's correlation of the ranks, equal values sharing their average rank. Pairs with a NaN are
// left out. NaN if fewer than two pairs remain or one side is constant.
double Spearman(std::span<const double> x, std::span<const double> y);

}  // namespace spotlight
