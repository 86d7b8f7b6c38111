// `spotlight calibrate`: how far explored images may be cheapened by reusing steps, for one model and one schedule.
//
// Denoises group/prompts training prompts x explore/seeds seeds (at least group/images) with every form of
// explore/cache and the same noise, in one process. Prints the polynomial of TeaCache fitted to the model, as a line
// for the input, and a table: for each setting the passes of the network that an image took, their time against that of
// all steps, and how well its rewards rank the seeds of a prompt as the rewards of all steps do: Spearman's rho and
// Kendall's tau-b, mean over the prompts and its standard error. Writes nothing.
#pragma once

#include <array>
#include <span>

#include "comm/world.hpp"
#include "config/command_line.hpp"

namespace spotlight {

// Coefficients, highest power first, of the polynomial of degree 4 with the least squared error at the points (x, y).
// Where the points leave some undetermined (fewer than five different x), those of the highest powers are 0.
std::array<double, 5> FitPolynomial(std::span<const double> x, std::span<const double> y);

// Returns the exit code. UserError before any work.
int RunCalibrate(const CommandLine& command, const World& world);

}  // namespace spotlight
