#include "comm/world.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/trainer_group.hpp"

namespace spotlight {
namespace {

// gtest_main runs without a launcher, so no MPI function may be called here.
TEST(World, OneProcessWithoutMpi) {
  World world;
  EXPECT_FALSE(world.under_mpi());
  EXPECT_EQ(world.size(), 1);
  world.AssignRoles(1);
  EXPECT_EQ(world.role(), Role::kAll);
  EXPECT_EQ(world.trainer_index(), 0);
  EXPECT_EQ(world.Broadcast("text"), "text");
  EXPECT_EQ(world.AllGather("text"), std::vector<std::string>{"text"});
  EXPECT_THROW(world.AssignRoles(2), UserError);

  TrainerGroup group(world);
  std::vector<float> values = {1.5F, -2};
  group.SumInOrder(values);
  group.Broadcast(values);
  EXPECT_EQ(values, (std::vector<float>{1.5F, -2}));
  EXPECT_EQ(group.SumDouble(3), 3);
  EXPECT_EQ(group.MaxDouble(-3), -3);

  EXPECT_EQ(world.AgreeExit(kExitStopped), kExitStopped);
  EXPECT_EQ(world.Finish(kExitStopped), kExitStopped);
}

TEST(World, WorseExitFollowsTheOrder) {
  const std::vector<int> from_best = {kExitFinished, kExitStopped, kExitUsage, kExitFile, kExitInternal};
  for (std::size_t a = 0; a < from_best.size(); ++a) {
    for (std::size_t b = 0; b < from_best.size(); ++b) {
      EXPECT_EQ(WorseExit(from_best[a], from_best[b]), from_best[std::max(a, b)]);
    }
  }
  EXPECT_EQ(WorseExit(137, kExitFile), 137) << "an unknown code is our bug";
}

}  // namespace
}  // namespace spotlight
