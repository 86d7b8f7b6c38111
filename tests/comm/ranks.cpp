// What the ranks do in the tests under scripts/mpirun.sh: ranks SCENARIO. Each rank checks what it sees with EXPECT and
// leaves with the code that CMakeLists.txt expects; a failed check is an InternalError and so exit code 1. (Where 1 is
// expected the test is that the job ends at all, in time, and not with 0.)
#include "tests/comm/ranks.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <variant>
#include <vector>

#include "base/bfloat16.hpp"
#include "base/error.hpp"
#include "base/sequence_group.hpp"
#include "comm/channel.hpp"
#include "comm/host_peer_memory.hpp"
#include "comm/mpi_settings.hpp"
#include "comm/trainer_group.hpp"
#include "comm/world.hpp"

namespace spotlight {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

volatile std::sig_atomic_t stop_asked = 0;

int Settings(World& world) {
  EXPECT(world.under_mpi());
  EXPECT(world.fault_tolerant());
  EXPECT(MissingMpiSettings(world.fault_tolerant()).empty());
  return kExitFinished;
}

int Collectives(World& world) {
  const int n = world.size();
  const int rank = world.rank();
  EXPECT(world.local_ranks() == n);
  EXPECT(world.local_index() == rank);
  world.AssignRoles(1);
  EXPECT(world.role() == (n == 1      ? Role::kAll
                          : rank == 0 ? Role::kCoordinator
                          : rank == 1 ? Role::kTrainer
                                      : Role::kExplorer));
  EXPECT(world.trainer_index() == (n == 1 || rank == 1 ? 0 : -1));
  EXPECT(world.explorers() == (n == 1 ? 1 : n - 2));
  EXPECT(ProcessName() ==
         "rank " + std::to_string(rank) + " (" + std::string(RoleName(world.role())) + ") on " + world.host());
  const int root = n - 1;
  EXPECT(world.Broadcast("from " + std::to_string(rank), root) == "from " + std::to_string(root));
  EXPECT(world.Broadcast("", root).empty());
  // Lengths 0, 1, 2, ...
  const std::vector<std::string> texts = world.AllGather(std::string(static_cast<std::size_t>(rank), 'x'));
  EXPECT(std::ssize(texts) == n);
  for (int r = 0; r < n; ++r)
    EXPECT(texts[static_cast<std::size_t>(r)] == std::string(static_cast<std::size_t>(r), 'x'));
  return kExitFinished;
}

// The last rank coordinates.
int Wishes(World& world) {
  if (world.rank() == world.size() - 1) setenv("SPOTLIGHT_ROLE", "coordinator", 1);
  world.AssignRoles(2);
  EXPECT(world.coordinator() == world.size() - 1);
  EXPECT((world.role() == Role::kCoordinator) == (world.rank() == world.size() - 1));
  EXPECT(world.trainer_index() == (world.rank() < 2 ? world.rank() : -1));
  return kExitFinished;
}

// Every other rank pulls ten times; the replies carry weights.
int Channel(World& world) {
  world.AssignRoles(1);
  std::unique_ptr<NetworkServer> server;
  if (world.role() == Role::kCoordinator) server = MakeServer("127.0.0.1");
  const std::string address = world.Broadcast(server ? server->address() : "", world.coordinator());
  constexpr int kPulls = 10;
  if (server) {
    std::map<std::uint32_t, int> pulls;
    const Handler handler = [&](const Bytes& request) {
      const auto pull = std::get<Pull>(Decode(request, 5));
      ++pulls[pull.rank];
      Weights weights;
      weights.values.assign(100000, static_cast<float>(pull.rank));
      return Encode(weights, 5);
    };
    const Clock::time_point deadline = Clock::now() + seconds(20);
    for (int served = 0; served < kPulls * (world.size() - 1);) {
      EXPECT(Clock::now() < deadline);
      if (server->ServeOne(handler, milliseconds(100))) ++served;
    }
    for (const auto& [rank, count] : pulls) EXPECT(count == kPulls);
    return kExitFinished;
  }
  const std::unique_ptr<Client> client = MakeClient(address, seconds(10));
  for (int i = 0; i < kPulls; ++i) {
    Pull pull;
    pull.rank = static_cast<std::uint32_t>(world.rank());
    const auto weights = std::get<Weights>(Decode(client->Call(Encode(pull, 5)), 5));
    EXPECT(weights.values == std::vector<float>(100000, static_cast<float>(world.rank())));
  }
  return kExitFinished;
}

float Value(std::size_t trainer, std::size_t i) {
  return static_cast<float>((i * 2654435761U + trainer * 40503U) % 1000003U) * 1e-3F;
}

// All ranks but the coordinator train. Not a multiple of a piece or of the trainers.
int Sum(World& world) {
  world.AssignRoles(world.size() - 1);
  if (world.role() == Role::kCoordinator) return kExitFinished;
  TrainerGroup group(world);
  const auto n = static_cast<std::size_t>(group.size());
  std::vector<float> values((1U << 20) + 1237);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = Value(static_cast<std::size_t>(group.index()), i);
  std::vector<float> few = {1.0F, 2.0F};  // fewer than three trainers
  const std::vector<float> own = values;
  group.SumInOrder(values);
  group.SumInOrder(few);
  for (std::size_t i = 0; i < values.size(); ++i) {
    double sum = 0;
    for (std::size_t t = 0; t < n; ++t) sum += Value(t, i);
    EXPECT(values[i] == static_cast<float>(sum));
  }
  EXPECT(few[1] == 2.0F * static_cast<float>(n));
  std::vector<float> of_last = own;
  group.Broadcast(of_last, group.size() - 1);
  for (std::size_t i = 0; i < own.size(); ++i) EXPECT(of_last[i] == Value(n - 1, i));
  EXPECT(group.SumDouble(group.index() + 1.0) == static_cast<double>(n * (n + 1)) / 2);
  EXPECT(group.MaxDouble(-group.index() - 1.0) == -1.0);
  const double with_nan = group.MaxDouble(group.index() == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0);
  EXPECT(with_nan != with_nan);
  return kExitFinished;
}

// Shards of lengths that fit neither each other nor a piece; one array has fewer elements than there are trainers.
int Shards(World& world) {
  world.AssignRoles(world.size() - 1);
  if (world.role() == Role::kCoordinator) return kExitFinished;
  TrainerGroup group(world);
  for (const std::size_t size : {std::size_t{1}, std::size_t{1000}, (std::size_t{2} << 20) + 1237}) {
    std::vector<float> whole(size);
    for (std::size_t i = 0; i < size; ++i) whole[i] = Value(static_cast<std::size_t>(group.index()), i);
    std::vector<float> shards = whole;
    group.SumInOrder(whole);
    group.SumShardInOrder(shards);
    const ShareRange own = ShareOf(std::ssize(shards), group.index(), group.size());
    for (auto i = static_cast<std::size_t>(own.begin); i < static_cast<std::size_t>(own.end); ++i) {
      EXPECT(shards[i] == whole[i]);
    }
    std::vector<Bfloat16> halves(size), halves_of_whole(size);
    for (std::size_t i = 0; i < size; ++i) {
      const bool mine = static_cast<Index>(i) >= own.begin && static_cast<Index>(i) < own.end;
      if (!mine) shards[i] = -1;
      halves[i] = ToBfloat16(shards[i]);
      halves_of_whole[i] = ToBfloat16(whole[i]);
    }
    group.GatherShards(shards);
    group.GatherShards(std::span<Bfloat16>(halves));
    EXPECT(shards == whole);
    EXPECT(halves == halves_of_whole);
  }
  return kExitFinished;
}

// All ranks but the coordinator train. Texts of lengths 0, 1, ..., the last one long.
int Texts(World& world) {
  world.AssignRoles(world.size() - 1);
  if (world.role() == Role::kCoordinator) return kExitFinished;
  TrainerGroup group(world);
  const auto text = [&](int index) {
    return std::string(index == group.size() - 1 ? 300000U : static_cast<std::size_t>(index),
                       static_cast<char>('a' + index));
  };
  const std::vector<std::string> texts = group.AllGather(text(group.index()));
  EXPECT(std::ssize(texts) == group.size());
  for (int i = 0; i < group.size(); ++i) EXPECT(texts[static_cast<std::size_t>(i)] == text(i));
  return kExitFinished;
}

// Who looks at the other trainers learns of a death, or that one has left by an exception, without waiting for anybody.
int Looks(World& world, bool dies) {
  world.AssignRoles(3);
  if (world.role() == Role::kCoordinator) throw WorldEnding(kExitStopped);  // no agreement with the dead
  const Clock::time_point start = Clock::now();
  try {
    TrainerGroup group(world);
    for (int i = 0; i < 100; ++i) group.LookAtPeers();
    group.SumDouble(1);
    if (group.index() == 1 && dies) std::raise(SIGKILL);
    if (group.index() == 1) throw PeerLost("only this trainer sees it");
    while (Clock::now() - start < seconds(10)) group.LookAtPeers();
  } catch (const PeerLost&) {
    EXPECT(Clock::now() - start < seconds(5));
    throw WorldEnding(kExitStopped);
  }
  return kExitFinished;
}
int LooksAtDeath(World& world) { return Looks(world, true); }
int LooksAtLeave(World& world) { return Looks(world, false); }

// Without a GPU on one of the trainers there is no connection, for a reason that all know, and sums go by MPI.
int NoDevice(World& world) {
  world.AssignRoles(world.size() - 1);
  if (world.role() == Role::kCoordinator) return kExitFinished;
  TrainerGroup group(world);
  const std::string last = "trainer " + std::to_string(group.size() - 1);
  const DeviceConnector failing = {.Gpu = [] { return std::string("0000:01:00.0"); },
                                   .MakeId = []() -> std::string { throw UserError("no id"); },
                                   .Connect = nullptr};
  EXPECT(group.Connect(group.index() == group.size() - 1 ? nullptr : &failing) == last + ": it has no GPU");
  EXPECT(group.device() == nullptr);
  const std::string reason = group.Connect(&failing);
  EXPECT(reason ==
         (group.size() == 1 ? "trainer 0: no id" : "trainers 0 and 1 share GPU 0000:01:00.0 of " + world.host()));
  EXPECT(group.device() == nullptr);
  EXPECT(group.SumDouble(1) == group.size());
  return kExitFinished;
}

int WorstExit(World& world) {
  constexpr int kCodes[] = {kExitFinished, kExitStopped, kExitFile, kExitUsage};
  const int agreed = world.AgreeExit(kCodes[world.rank()]);
  EXPECT(agreed == kExitFile);
  return agreed;
}

int TooManyTrainers(World& world) {
  world.AssignRoles(3);
  return kExitFinished;
}

int OneGivesUp(World& world) {
  if (world.rank() == 2) throw UserError("only this rank sees it");
  world.Broadcast("text");
  return kExitFinished;
}

// The thrower's exit code is the worse one; the others would return kExitInternal if they noticed too late.
int TrainerThrows(World& world) {
  world.AssignRoles(3);
  world.AllGather("");  // else one throws while another is still in AssignRoles
  if (world.role() == Role::kCoordinator) return kExitFinished;
  const Clock::time_point start = Clock::now();
  try {
    TrainerGroup group(world);
    if (group.index() == 1) throw FileError("only this trainer sees it");
    group.SumDouble(1);
  } catch (const PeerLost&) {
    EXPECT(Clock::now() - start < seconds(5));
    return kExitStopped;
  }
  return kExitFinished;
}

// Rank 2 dies while the others wait for it.
int Killed(World& world) {
  if (world.rank() == 2) std::raise(SIGKILL);
  try {
    world.AllGather("x");
  } catch (const PeerLost&) {
    throw WorldEnding(kExitStopped);
  }
  return kExitFinished;
}

int CoordinatorKilled(World& world) {
  world.AssignRoles(1);
  if (world.role() == Role::kCoordinator) std::raise(SIGKILL);
  world.Broadcast("x");
  return kExitFinished;
}

// Rank 2 is late by more than the limit of 1 s.
int Silent(World& world) {
  const Clock::time_point start = Clock::now();
  if (world.rank() == 2) std::this_thread::sleep_for(milliseconds(2500));
  try {
    world.Broadcast("x");
  } catch (const PeerLost&) {
    EXPECT(world.rank() == 2 || Clock::now() - start < milliseconds(2400));
    throw WorldEnding(kExitStopped);
  }
  return kExitFinished;
}

// A spot rank has lost its connection, or so it believes; the run goes on and ends well.
int SpotRankCutOff(World& world) {
  world.AssignRoles(1);
  world.AllGather("");
  world.Part();
  if (world.role() == Role::kExplorer) world.LeaveAfterLoss(kExitStopped);
  std::this_thread::sleep_for(seconds(1));
  world.Leave(kExitFinished);
}

// The trainer sees its connection end, and is gone before the coordinator has unwound.
int CoordinatorThrows(World& world) {
  world.AssignRoles(1);
  world.AllGather("");
  world.Part();
  if (world.role() == Role::kTrainer) {
    std::this_thread::sleep_for(milliseconds(500));
    world.LeaveAfterLoss(kExitStopped);
  }
  if (world.role() == Role::kExplorer) world.Leave(kExitFinished);
  world.NoteExit(kExitFile);
  std::this_thread::sleep_for(seconds(1));
  world.Leave(kExitFile);
}

int AbortAll(World& world) {
  if (world.rank() == 1) world.Abort(kExitInternal);
  std::this_thread::sleep_for(seconds(30));
  return kExitFinished;
}

int Stop(World& world) {
  std::signal(SIGUSR1, [](int) { stop_asked = 1; });
  world.Broadcast("all have set their handler");
  if (world.rank() == 0) std::puts("ready");
  std::fflush(stdout);
  for (int i = 0; i < 300 && stop_asked == 0; ++i) std::this_thread::sleep_for(milliseconds(100));
  return stop_asked != 0 ? kExitStopped : kExitFinished;
}

std::map<std::string, Scenario> Scenarios() {
  std::map<std::string, Scenario> scenarios = {
      {"settings", Settings},
      {"collectives", Collectives},
      {"wishes", Wishes},
      {"channel", Channel},
      {"sum", Sum},
      {"shards", Shards},
      {"texts", Texts},
      {"looks_at_death", LooksAtDeath},
      {"looks_at_leave", LooksAtLeave},
      {"no_device", NoDevice},
      {"worst_exit", WorstExit},
      {"too_many_trainers", TooManyTrainers},
      {"one_gives_up", OneGivesUp},
      {"trainer_throws", TrainerThrows},
      {"killed", Killed},
      {"coordinator_killed", CoordinatorKilled},
      {"silent", Silent},
      {"spot_rank_cut_off", SpotRankCutOff},
      {"coordinator_throws", CoordinatorThrows},
      {"abort", AbortAll},
      {"stop", Stop},
  };
  scenarios.merge(SpScenarios());
  scenarios.merge(PoolScenarios());
  return scenarios;
}

// As a program's main should end: every failure becomes a code, all ranks agree on it.
int Run(int argc, char** argv) {
  const std::string scenario = argc > 1 ? argv[1] : "";
  if (scenario == "dies_starting" && std::getenv("OMPI_COMM_WORLD_RANK") == std::string("1")) std::raise(SIGKILL);
  milliseconds limit = scenario.ends_with("silent") ? seconds(1) : seconds(20);
  if (scenario == "dies_starting") limit = std::chrono::minutes(5);  // the others notice it long before
  World world(&argc, &argv, limit);
  constexpr std::string_view kWindows = "windows_";
  uses_windows = scenario.starts_with(kWindows);
  int code = kExitInternal;
  try {
    if (uses_windows) EXPECT(world.UseWindows(std::make_unique<HostPeerMemory>(), 10007));
    code = Scenarios().at(uses_windows ? scenario.substr(kWindows.size()) : scenario)(world);
  } catch (const WorldEnding& ending) {  // also thrown by scenarios that leave without an agreement
    return world.Finish(ending.code());
  } catch (const UserError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    code = kExitUsage;
  } catch (const FileError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    code = kExitFile;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return world.Finish(world.AgreeExit(code));
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) { return spotlight::Run(argc, argv); }
