#include "reward/detection.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr double kTolerance = 0.1;     // share of the summed extents that an offset must exceed
constexpr double kMinComponent = 0.5;  // of the direction
constexpr double kNoOffset = 1e-3;     // pixels

double TowardsZero(double offset, double amount) {
  return std::copysign(std::max(std::abs(offset) - amount, 0.0), offset);
}

}  // namespace

double ShareOf(const Detection& detection, const std::string& color) {
  for (const ColorShare& entry : detection.color_shares) {
    if (entry.color == color) return entry.share;
  }
  return 0;
}

bool RelationHolds(const std::string& relation, const Box& a, const Box& b) {
  const double offset_x = (a.x0 + a.x1 - b.x0 - b.x1) / 2.0;
  const double offset_y = (a.y0 + a.y1 - b.y0 - b.y1) / 2.0;
  const double x = TowardsZero(offset_x, kTolerance * ((a.x1 - a.x0) + (b.x1 - b.x0)));
  const double y = TowardsZero(offset_y, kTolerance * ((a.y1 - a.y0) + (b.y1 - b.y0)));
  if (std::abs(x) <= kNoOffset && std::abs(y) <= kNoOffset) return false;
  const double length = std::sqrt(offset_x * offset_x + offset_y * offset_y);
  if (relation == "left of") return x / length < -kMinComponent;
  if (relation == "right of") return x / length > kMinComponent;
  if (relation == "above") return y / length < -kMinComponent;
  SPOTLIGHT_REQUIRE(relation == "below", "no such relation: " + relation);
  return y / length > kMinComponent;
}

}  // namespace spotlight
