#include "record/run_state.hpp"

#include <fmt/format.h>

#include <sstream>

#include "base/error.hpp"
#include "io/state_file.hpp"

namespace spotlight {
namespace {

constexpr std::size_t kScalars = 6;  // before the rank-seconds in "reals"

}  // namespace

void SaveRunState(const RunState& state, const std::string& folder) {
  StateFile file;
  const IterationPlan& plan = state.plan;
  std::vector<std::int64_t> prompts(plan.prompts.begin(), plan.prompts.end()), group_sizes;
  std::vector<std::uint64_t> seeds;
  std::vector<double> explored, pools;
  std::vector<std::uint64_t> control;
  for (const SeedChoice& group : plan.groups) {
    group_sizes.push_back(static_cast<std::int64_t>(group.seeds.size()));
    seeds.insert(seeds.end(), group.seeds.begin(), group.seeds.end());
    explored.insert(explored.end(), group.explored.begin(), group.explored.end());
    control.insert(control.end(), group.control.begin(), group.control.end());
    pools.insert(pools.end(), {group.pool_mean, group.pool_std});
  }
  const std::vector<std::int64_t> numbers = {state.next_iteration, plan.window_begin, plan.window_end, state.restarts};
  std::vector<double> reals = {state.elapsed_seconds, state.first_strict, state.first_strict_error,
                               state.first_reward,    state.useful_steps, state.all_steps};
  for (const auto& pool : state.ledger_seconds) reals.insert(reals.end(), std::begin(pool), std::end(pool));
  file.Put("plan/prompts", std::span<const std::int64_t>(prompts));
  file.Put("plan/group_sizes", std::span<const std::int64_t>(group_sizes));
  file.Put("plan/seeds", std::span<const std::uint64_t>(seeds));
  file.Put("plan/explored", std::span<const double>(explored));
  file.Put("plan/control", std::span<const std::uint64_t>(control));
  file.Put("plan/pools", std::span<const double>(pools));
  file.Put("planner", std::span<const double>(state.planner));
  file.Put("staleness", std::span<const double>(state.staleness));
  file.Put("numbers", std::span<const std::int64_t>(numbers));
  file.Put("reals", std::span<const double>(reals));
  file.Put("input", state.input);
  std::string contents;  // "key hash", a line each
  for (const auto& [key, hash] : state.contents) contents += key + " " + hash + "\n";
  file.Put("contents", contents);
  file.Put("token", state.token);
  file.Save(folder + "/" + kRunStateFile);
}

RunState LoadRunState(const std::string& folder) {
  const StateFile file = StateFile::Load(folder + "/" + kRunStateFile);
  RunState state;
  const std::vector<std::int64_t>& numbers = file.Ints("numbers");
  state.next_iteration = static_cast<std::uint32_t>(numbers.at(0));
  state.plan.iteration = state.next_iteration;
  state.plan.window_begin = static_cast<std::uint32_t>(numbers.at(1));
  state.plan.window_end = static_cast<std::uint32_t>(numbers.at(2));
  state.restarts = static_cast<int>(numbers.at(3));
  const std::vector<double>& reals = file.Doubles("reals");
  if (reals.size() != kScalars + kPools * kUses) {
    throw FileError(fmt::format(
        "{}/coordinator.h5: \"reals\" has {} values where {} are meant: another version of spotlight wrote this "
        "checkpoint; go on with that version, or start a new run",
        folder, reals.size(), kScalars + kPools * kUses));
  }
  state.elapsed_seconds = reals.at(0);
  state.first_strict = reals.at(1);
  state.first_strict_error = reals.at(2);
  state.first_reward = reals.at(3);
  state.useful_steps = reals.at(4);
  state.all_steps = reals.at(5);
  for (std::size_t pool = 0; pool < kPools; ++pool) {
    for (std::size_t use = 0; use < kUses; ++use) {
      state.ledger_seconds[pool][use] = reals.at(kScalars + pool * kUses + use);
    }
  }
  const std::vector<std::int64_t>& prompts = file.Ints("plan/prompts");
  state.plan.prompts.assign(prompts.begin(), prompts.end());
  std::size_t next = 0;
  for (const std::int64_t size : file.Ints("plan/group_sizes")) {
    SeedChoice group;
    for (std::int64_t i = 0; i < size; ++i, ++next) {
      group.seeds.push_back(file.Uints("plan/seeds").at(next));
      group.explored.push_back(file.Doubles("plan/explored").at(next));
      group.control.push_back(file.Uints("plan/control").at(next) != 0);
    }
    const std::size_t pool = 2 * state.plan.groups.size();
    group.pool_mean = file.Doubles("plan/pools").at(pool);
    group.pool_std = file.Doubles("plan/pools").at(pool + 1);
    state.plan.groups.push_back(std::move(group));
  }
  state.planner = file.Doubles("planner");
  state.staleness = file.Doubles("staleness");
  state.input = file.Text("input");
  if (file.Has("token")) state.token = file.Text("token");
  std::istringstream contents(file.Text("contents"));
  for (std::string key, hash; contents >> key >> hash;) state.contents[key] = hash;
  return state;
}

}  // namespace spotlight
