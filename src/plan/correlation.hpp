// Do cheap or stale rewards order seeds as full fresh ones do? Rank correlations and overlap of the extremes.
//
// Everywhere pairs with a NaN or an infinite value are left out. The result is NaN where it is undefined: fewer than
// two pairs, or a side without spread.
#pragma once

#include <span>

namespace spotlight {

// Pearson's correlation of the values themselves.
double Pearson(std::span<const double> x, std::span<const double> y);

// Spearman's rho: Pearson's correlation of the ranks, equal values sharing their average rank.
double Spearman(std::span<const double> x, std::span<const double> y);

// Kendall's tau-b: (concordant - discordant pairs) / sqrt(pairs untied in x * pairs untied in y). O(n^2): 0.1 s for
// 10,000 values, and a prompt has some tens.
double KendallTauB(std::span<const double> x, std::span<const double> y);

// Share of the k best and k worst of x that are also the k best and worst of y. Where the k-th place is tied, all that
// tie have an equal part of the places left, as if drawn at random: constant sides overlap by chance, k / n. NaN with
// fewer than 2 k pairs. k >= 1 (SPOTLIGHT_REQUIRE).
double ExtremeOverlap(std::span<const double> x, std::span<const double> y, int k);

}  // namespace spotlight
