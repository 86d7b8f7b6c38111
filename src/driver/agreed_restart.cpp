#include "driver/agreed_restart.hpp"

#include <fmt/format.h>

#include <chrono>
#include <sstream>
#include <thread>

#include "base/error.hpp"
#include "io/checkpoint.hpp"
#include "record/run_state.hpp"

namespace spotlight {
namespace {

// A client of a network file system may keep for as long that a file is not there.
constexpr std::chrono::seconds kSeen{30};

void AwaitCheckpoint(const Restart& restart, const World& world) {
  const auto deadline = std::chrono::steady_clock::now() + kSeen;
  while (!HasCheckpoint(restart.directory, restart.step)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      throw FileError(
          fmt::format("{}: rank 0 starts from it, but {} does not see it from {}; all ranks must see the "
                      "same run directory under the same name",
                      restart.checkpoint(), ProcessName(), world.host()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

}  // namespace

std::optional<Restart> AgreeOnRestart(const CommandLine& command, World& world) {
  if (command.restart.empty()) return std::nullopt;
  Restart restart;
  if (world.rank() == 0) restart = *FindRestart(command, kRunStateFile);
  if (world.size() == 1) return restart;
  world.SetLimit(std::chrono::hours(1));  // while rank 0 compares checksums of a large one
  restart.directory = world.Broadcast(restart.directory);
  world.SetLimit(World::kLimit);
  std::istringstream(world.Broadcast(fmt::format("{} {}", restart.step, restart.newest))) >> restart.step >>
      restart.newest;
  std::string problems;
  for (const std::string& problem : restart.problems) problems += problem + "\n";
  std::istringstream lines(world.Broadcast(problems));
  restart.problems.clear();
  for (std::string line; std::getline(lines, line);) restart.problems.push_back(line);
  AwaitCheckpoint(restart, world);
  return restart;
}

}  // namespace spotlight
