// What the ranks do in the tests of SpotPool, see ranks.cpp: groups of two exchange in a loop while members die in a
// step, in every place of a regroup, stop, leave, and come out of the reserve; and members of groups of one, whose
// death only those in the reserve look for. The coordinator only waits for the end: the loss of an explorer must not
// touch it.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/failpoint.hpp"
#include "comm/spot_pool.hpp"
#include "tests/comm/ranks.hpp"

namespace spotlight {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::mt19937 generator;  // NOLINT: of this process, seeded by rank and time
int death_percent = 0;

void MayDie(const char*) {
  if (static_cast<int>(generator() % 100) < death_percent) std::raise(SIGKILL);
}

enum : std::int32_t { kActive, kParked, kLeaving };

// Groups of two of the active members, in rank order; the last one may be alone.
std::vector<std::vector<int>> Pairs(const std::vector<PoolMember>& members) {
  std::vector<std::vector<int>> groups;
  for (const PoolMember& member : members) {
    EXPECT(member.host == members[0].host);
    if (member.word[0] != kActive) continue;
    if (groups.empty() || groups.back().size() == 2) groups.emplace_back();
    groups.back().push_back(member.rank);
  }
  return groups;
}

// The first two members, each alone: the others are parked until one of these is missing.
std::vector<std::vector<int>> TwoAlone(const std::vector<PoolMember>& members) {
  std::vector<std::vector<int>> groups;
  for (std::size_t i = 0; i < 2 && i < members.size(); ++i) groups.push_back({members[i].rank});
  return groups;
}

struct Story {
  int death_in_step = 0;  // percent
  int death_in_regroup = 0;
  int leave = 0;              // percent a step
  bool parked_third = false;  // the upper third of the ranks starts parked, and activates itself after a while
  bool stop_one = false;      // rank 2 stops itself
  bool hang_one = false;      // rank 2 goes on beating but does nothing any more
  bool slow_one = false;      // a long step of rank 2 is longer than the late limit, as a shorter one has announced
  bool alone = false;         // rank 2, in a group of its own, dies, and the first of the parked third takes its place
  milliseconds length = milliseconds(2500);
};

// Steps until the time is over. Every exchange is checked, so a message of an old group would show.
int Explore(World& world, const Story& story) {
  generator.seed(static_cast<unsigned>(world.rank() * 7919 + getpid()));
  SpotPool pool(world, milliseconds(500), milliseconds(1500));
  failpoint_hook = MayDie;
  const Clock::time_point start = Clock::now();
  std::int32_t state = kActive;
  if ((story.parked_third || story.alone) && 3 * world.rank() >= 2 * world.size()) state = kParked;
  int regroups = 0;
  bool slept = false;
  const auto regroup = [&] {
    death_percent = regroups == 0 ? 0 : story.death_in_regroup;
    pool.Regroup(state != kLeaving, false, {state}, [&](const std::vector<PoolMember>& members) {
      const std::vector<std::vector<int>> groups = story.alone ? TwoAlone(members) : Pairs(members);
      const bool works = std::any_of(groups.begin(), groups.end(), [&](const auto& group) {
        return std::find(group.begin(), group.end(), world.rank()) != group.end();
      });
      if (works) state = kActive;
      return groups;
    });
    death_percent = 0;
    ++regroups;
    if (state == kLeaving) world.Leave(kExitFinished);
  };
  regroup();
  for (int step = 0; Clock::now() - start < story.length;) {
    try {
      const bool late = Clock::now() - start > story.length / 2;
      EXPECT(!story.alone || world.rank() != 4 || !late || state == kActive);
      const bool wakes = state == kParked && !story.alone && late;
      if (wakes) state = kActive;
      if (state == kActive && static_cast<int>(generator() % 1000) < story.leave) state = kLeaving;
      const bool wants = wakes || state == kLeaving || (state == kParked && pool.HasLost());
      if (state == kParked) std::this_thread::sleep_for(milliseconds(2));
      if (pool.AnyWants({.regroup = wants}, step % 4 != 0).regroup) {
        regroup();
        continue;
      }
      if (story.alone && world.rank() == 2 && step == 20) std::raise(SIGKILL);
      if (story.stop_one && world.rank() == 2 && step == 20) std::raise(SIGSTOP);
      while (story.hang_one && world.rank() == 2 && step == 20) std::this_thread::sleep_for(milliseconds(1));
      if (story.slow_one && world.rank() == 2 && step == 10) std::this_thread::sleep_for(milliseconds(1000));
      if (story.slow_one && world.rank() == 2 && !slept && Clock::now() - start > milliseconds(1900)) {
        slept = true;
        std::this_thread::sleep_for(milliseconds(2600));  // the others wait for it to regroup
      }
      if (story.slow_one && world.rank() == 4 && Clock::now() - start > milliseconds(2000)) std::raise(SIGKILL);
      death_percent = story.death_in_step;
      MayDie("step");
      death_percent = 0;
      SpGroup& group = pool.group();
      const auto size = static_cast<std::size_t>(group.size());
      const std::vector<Index> bytes(size, 100 * sizeof(float));
      std::vector<float> send(100 * size, static_cast<float>(group.index())), receive(100 * size, -1);
      const bool by_windows = group.AllToAllOnDevice(send.data(), bytes, receive.data(), bytes);
      if (!by_windows) group.AllToAll(send.data(), bytes, receive.data(), bytes);
      EXPECT(by_windows <= uses_windows);  // a member may die before its window was opened
      for (std::size_t i = 0; i < receive.size(); ++i) EXPECT(receive[i] == static_cast<float>(i / 100));
      ++step;
      std::this_thread::sleep_for(milliseconds(1));
    } catch (const PeerLost&) {
      regroup();
    }
  }
  // Whoever ends first must not keep the others: they see a loss and go on until their own time is over.
  world.Leave(kExitFinished);
}

// Ranks of this run that have not ended: processes with the same parent.
int LivingRanks() {
  int living = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    if (entry.is_symlink()) continue;  // self
    std::ifstream file(entry.path() / "stat");
    std::string text;
    if (!std::getline(file, text)) continue;
    std::istringstream fields(text.substr(text.rfind(')') + 1));
    char state = ' ';
    int parent = 0;
    fields >> state >> parent;
    if (parent == getppid() && state != 'Z') ++living;
  }
  return living;
}

int Play(World& world, const Story& story) {
  world.AssignRoles(1);
  if (world.role() == Role::kExplorer) {
    try {
      return Explore(world, story);
    } catch (const std::exception& error) {  // its code must stand, not the coordinator's
      std::fprintf(stderr, "%s\n", error.what());
      world.LeaveAfterLoss(kExitInternal);
    }
  }
  const Clock::time_point start = Clock::now();
  std::this_thread::sleep_for(story.length);
  if (world.role() == Role::kTrainer) world.Leave(kExitFinished);
  while (LivingRanks() > 1) {
    if (Clock::now() - start > story.length + std::chrono::seconds(20)) {
      std::fprintf(stderr, "%d ranks hang\n", LivingRanks() - 1);
      world.Leave(kExitInternal);
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  world.Leave(kExitFinished);
}

int PoolSteps(World& world) { return Play(world, {.length = milliseconds(500)}); }
int PoolDeaths(World& world) { return Play(world, {.death_in_step = 1}); }
int PoolDeathsInRegroup(World& world) { return Play(world, {.death_in_step = 1, .death_in_regroup = 4}); }
int PoolLeaves(World& world) { return Play(world, {.leave = 5}); }
int PoolParked(World& world) { return Play(world, {.death_in_step = 1, .parked_third = true}); }
int PoolAlone(World& world) { return Play(world, {.alone = true, .length = milliseconds(3000)}); }
int PoolStopped(World& world) { return Play(world, {.stop_one = true}); }
int PoolSlow(World& world) { return Play(world, {.slow_one = true, .length = milliseconds(5000)}); }
int PoolHangs(World& world) { return Play(world, {.hang_one = true, .length = milliseconds(10000)}); }

}  // namespace

std::map<std::string, Scenario> PoolScenarios() {
  return {{"pool_steps", PoolSteps},   {"pool_deaths", PoolDeaths}, {"pool_deaths_in_regroup", PoolDeathsInRegroup},
          {"pool_leaves", PoolLeaves}, {"pool_parked", PoolParked}, {"pool_stopped", PoolStopped},
          {"pool_alone", PoolAlone},   {"pool_slow", PoolSlow},     {"pool_hangs", PoolHangs}};
}

}  // namespace spotlight
