#include "plan/arms.hpp"

#include <set>

#include "base/error.hpp"

namespace spotlight {
namespace {

// In tenths, so that nothing rounds: 0.3 * 10 must not become 4.
constexpr int kSeedTenths[] = {10, 15, 20, 30, 40};
constexpr int kStepTenths[] = {3, 4, 6, 8, 10};

int Tenths(int tenths, int of) { return (tenths * of + 9) / 10; }

}  // namespace

std::vector<Arm> ArmGrid(int images, int most_seeds, int steps) {
  SPOTLIGHT_REQUIRE(images >= 1 && most_seeds >= 1 && steps >= 1, "sizes of the grid of arms");
  std::set<int> seeds = {most_seeds};
  std::set<int> forwards;
  for (const int tenths : kSeedTenths) {
    if (Tenths(tenths, images) < most_seeds) seeds.insert(Tenths(tenths, images));
  }
  for (const int tenths : kStepTenths) forwards.insert(Tenths(tenths, steps));
  std::vector<Arm> arms;
  for (const int n : seeds) {
    for (const int e : forwards) arms.push_back({n, e});
  }
  return arms;
}

}  // namespace spotlight
