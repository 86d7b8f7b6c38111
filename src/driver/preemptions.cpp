#include "driver/preemptions.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/log.hpp"

extern char** environ;  // NOLINT: POSIX

namespace spotlight {
namespace {

// What a program needs that is not to believe that it belongs to this MPI job.
std::vector<std::string> CleanEnvironment() {
  std::vector<std::string> clean;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const bool of_mpi = text.starts_with("OMPI_") || text.starts_with("PMIX_") || text.starts_with("PRTE_") ||
                        text.starts_with("OPAL_") || text.starts_with("SPOTLIGHT_EXIT_FILE=");
    if (!of_mpi || text.starts_with("OMPI_ALLOW_RUN_AS_ROOT")) clean.push_back(text);
  }
  return clean;
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

Preemptions::Preemptions(const Config& config, const SpotTrace& trace, const std::string& host,
                         const std::vector<std::uint32_t>& explorers, double start_seconds)
    : config_(config), host_(host) {
  player_.emplace(trace, TraceRules{.ranks = static_cast<int>(explorers.size()),
                                    .ranks_per_node = config.spot.ranks_per_node,
                                    .time_scale = config.spot.time_scale,
                                    .notice_seconds = config.spot.notice,
                                    .start_seconds = start_seconds,
                                    .seed = config.run.seed});
  for (const std::uint32_t rank : explorers) {
    places_.push_back({rank, false});
    next_rank_ = std::max(next_rank_, rank + 1);
  }
}

Preemptions::~Preemptions() {
  for (const pid_t job : jobs_) waitpid(job, nullptr, WNOHANG);  // they have heard Finish
}

void Preemptions::Play(Roster& roster, double seconds) {
  std::erase_if(jobs_, [](pid_t job) { return waitpid(job, nullptr, WNOHANG) == job; });
  Seat(roster);
  int wanted = 0;
  for (const SpotAction& action : player_->Due(seconds)) {
    Place& place = places_[static_cast<std::size_t>(action.rank)];
    switch (action.kind) {
      case SpotAction::Kind::kNotice:
        Signal(roster, place, SIGTERM);
        break;
      case SpotAction::Kind::kKill:
        Signal(roster, place, SIGKILL);
        place = {};
        break;
      case SpotAction::Kind::kReturn:
        place = {.awaited = true};
        if (!roster.CallParked()) ++wanted;
        break;
    }
  }
  for (int left = wanted; left > 0; left -= config_.spot.ranks_per_node) {
    StartJob(std::min(left, config_.spot.ranks_per_node));
  }
}

// Newcomers take the places that wait for somebody.
void Preemptions::Seat(const Roster& roster) {
  for (auto it = roster.ranks().lower_bound(next_rank_); it != roster.ranks().end(); ++it) {
    if (it->second.role != Role::kExplorer || it->second.parked) continue;
    const auto place = std::find_if(places_.begin(), places_.end(), [](const Place& p) { return p.awaited; });
    if (place != places_.end()) *place = {it->first, false};
    next_rank_ = it->first + 1;
  }
}

void Preemptions::Signal(Roster& roster, Place& place, int signal) const {
  if (!place.rank || !roster.Has(*place.rank)) return;
  const RosterRank& rank = roster.At(*place.rank);
  if (rank.host != host_) {
    LogWarning(fmt::format("[spot] trace: rank {} is on {}, not here: it is spared", *place.rank, rank.host));
    return;
  }
  LogLine(fmt::format("[spot] trace: {} for rank {}", signal == SIGTERM ? "notice" : "preemption", *place.rank));
  kill(static_cast<pid_t>(rank.process), signal);
}

void Preemptions::StartJob(int ranks) {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> words = {program, "--join", config_.run.directory};
  if (const char* launcher = std::getenv("SPOTLIGHT_LAUNCHER"); launcher != nullptr) {
    words.insert(words.begin(), {launcher, "-np", std::to_string(ranks)});
  }
  std::vector<std::string> environment = CleanEnvironment();
  // What they say is not the run's own output.
  const std::string log = config_.run.directory + "/logs/spot_jobs.log";
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t job = 0;
  const int error =
      posix_spawn(&job, words[0].c_str(), &files, nullptr, Pointers(words).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    LogWarning(fmt::format("[spot] trace: cannot start {}: {}", words[0], std::strerror(error)));
    return;
  }
  jobs_.push_back(job);
}

}  // namespace spotlight
