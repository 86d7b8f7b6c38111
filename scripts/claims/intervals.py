"""95 % intervals for a handful of run seeds: Student's t, for ratios on the logarithms of pairs.

A percentile bootstrap of 8 values is a fifth too narrow: it draws from a spread that is divided by n, not by n - 1, and
knows no heavier tails.
"""

import numpy as np

# 97.5 % quantile of Student's t by degrees of freedom, from 1 on.
QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
             2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045,
             2.042)  # fmt: skip


def quantile(freedom):
    if freedom <= len(QUANTILES):
        return QUANTILES[freedom - 1]
    z = 1.959964  # the normal distribution's, with the first terms of the expansion in 1 / freedom
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def of_mean(values):
    """(mean, low, high); the ends are NaN for a single value."""
    values = np.asarray(values, dtype=float)
    mean = float(values.mean())
    if values.size < 2:
        return mean, float("nan"), float("nan")
    half = quantile(values.size - 1) * float(values.std(ddof=1)) / np.sqrt(values.size)
    return mean, mean - half, mean + half


def of_ratio(pairs):
    """(geometric mean of a / b, low, high) of [n, 2] positive pairs (a, b)."""
    pairs = np.asarray(pairs, dtype=float)
    return tuple(float(np.exp(x)) for x in of_mean(np.log(pairs[:, 0] / pairs[:, 1])))


def text(interval, digits):
    middle, low, high = (f"{value:.{digits}f}" for value in interval)
    return middle if np.isnan(interval[1]) else f"{middle} ({low} to {high})"
