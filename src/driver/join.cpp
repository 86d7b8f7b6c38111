#include "driver/join.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <thread>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "base/node_memory.hpp"
#include "comm/channel.hpp"
#include "comm/messages.hpp"
#include "config/check.hpp"
#include "config/input.hpp"
#include "driver/computing.hpp"
#include "driver/dispatch.hpp"
#include "driver/explorer.hpp"
#include "driver/model_files.hpp"
#include "driver/resources.hpp"
#include "driver/signals.hpp"
#include "kernels/runtime.hpp"

namespace spotlight {
namespace {

constexpr auto kJoinSeconds = std::chrono::seconds(30);
constexpr std::uint32_t kLongestPause = 500;  // milliseconds between two questions

struct Door {
  std::string address;  // as MakeClient takes it
  std::uint64_t run_id = 0;
};

// `where`: a run directory, or the text of its join file.
Door FindDoor(const std::string& where) {
  std::string text = where;
  if (!where.starts_with("tcp://")) {
    const std::string path = where + "/join";
    std::ifstream file(path);
    if (!file) {
      throw UserError(
          fmt::format("--join {}: {} cannot be read ({}): a run writes it while it takes spot jobs; start the "
                      "run first, or name its directory",
                      where, path, std::strerror(errno)));
    }
    std::getline(file, text);
  }
  std::istringstream words(text);
  std::string endpoint, key, run;
  words >> endpoint >> key >> run;
  if (!endpoint.starts_with("tcp://") || key.size() != 40 || run.size() != 16 ||
      run.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw UserError(
        fmt::format("--join: '{}' is no address of a run; write its directory, or the line in its join file "
                    "(tcp://HOST:PORT KEY RUN)",
                    text));
  }
  return {endpoint + " " + key, std::stoull(run, nullptr, 16)};
}

Welcome AskToJoin(const Door& door, const World& world) {
  const std::unique_ptr<Client> client = MakeClient(door.address, kJoinSeconds);
  const Bytes join = Encode(Join{world.host(), static_cast<std::uint32_t>(world.size())}, door.run_id);
  Message reply = Decode(client->Call(join), door.run_id);
  // This host flaps: it is to come back later. Asks now and then, so that the end of the run or of this job is noticed.
  for (bool told = false; const auto* wait = std::get_if<Wait>(&reply); told = true) {
    if (!told)
      LogLine(fmt::format("the run lets this host wait {:.1f} s, because its last ranks were lost at once",
                          wait->milliseconds / 1000.0));
    if (!StopSignal().empty()) throw UserError("--join: told to stop before the run let this host in");
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(wait->milliseconds, kLongestPause)));
    reply = Decode(client->Call(join), door.run_id);
  }
  if (const auto* failed = std::get_if<Failed>(&reply)) throw UserError("--join: " + failed->text);
  const auto* welcome = std::get_if<Welcome>(&reply);
  SPOTLIGHT_REQUIRE(welcome != nullptr, "the coordinator's reply is none of Join's");
  return *welcome;
}

}  // namespace

JoinFile::JoinFile(const std::string& directory, const std::string& address, std::uint64_t run_id)
    : path_(directory + "/join") {
  const std::string text = fmt::format("{} {:016x}\n", address, run_id);
  const std::string aside = path_ + ".tmp";
  unlink(aside.c_str());
  const int file = open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  bool written = file >= 0 && write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (file >= 0) written = close(file) == 0 && written;
  if (!written || std::rename(aside.c_str(), path_.c_str()) != 0) {
    throw FileError(fmt::format("{}: cannot be written: {}", path_, std::strerror(errno)));
  }
}

JoinFile::~JoinFile() { unlink(path_.c_str()); }

std::string NodeSession(std::uint64_t run_id) { return fmt::format("{:016x}", run_id); }

int RunJoin(const CommandLine& command, World& world) {
  InstallSignalHandlers();
  const Door door = FindDoor(command.join);
  NodeMemory::RemoveLeftovers();
  // One rank asks for all.
  std::string first_rank, input, directory;
  if (world.rank() == 0) {
    try {
      const Welcome welcome = AskToJoin(door, world);
      first_rank = std::to_string(welcome.first_rank);
      input = welcome.input;
      directory = welcome.directory;
    } catch (const CoordinatorLost& lost) {
      throw UserError(fmt::format("--join {}: nobody answers there: the run has ended, or was killed", command.join));
    }
  }
  first_rank = world.Broadcast(first_rank);
  input = world.Broadcast(input);
  directory = world.Broadcast(directory);
  Failpoint("join.welcomed");
  world.AssignExplorers();
  world.Part();
  Config config = ReadInputText(input, directory + " (the run's settings)", {});
  config.run.directory = directory;
  StartComputing(config, world);
  UseWindows(config, world);
  const Resources resources = LoadResources(config);
  const std::uint32_t first = static_cast<std::uint32_t>(std::stoul(first_rank));
  const std::uint32_t rank = first + static_cast<std::uint32_t>(world.rank());
  OpenLog(fmt::format("{}/logs/rank_{:04}.log", directory, rank), false);
  LogLine(fmt::format("{} joins as rank {}, {} thread(s)", ProcessName(), rank, KernelThreads()));
  const std::unique_ptr<Client> client = MakeClient(door.address, std::chrono::minutes(10), std::to_string(rank));
  NodeMemory node(NodeSession(door.run_id));
  Failpoint("join.ready");
  int code = kExitFinished;
  try {
    code = Explorer(config, resources, world, first, true, door.run_id, node, *client).Run();
  } catch (const RunFailed& refused) {
    LogWarning(refused.what());
    fmt::print(stderr, "spotlight: {}\n", refused.what());
    code = refused.exit_code();
  } catch (const CoordinatorLost& lost) {
    LogLine(lost.what());
    if (world.rank() == 0) fmt::print(stderr, "spotlight: the run has ended or was killed\n");
    code = kExitStopped;
  }
  LogLine(fmt::format("left with code {}", code));
  return code;
}

}  // namespace spotlight
