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
#include <optional>
#include <span>
#include <sstream>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

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

// Where a run lets spot jobs in, by its join file.
struct Door {
  std::string host, port, key;
  std::uint64_t run_id = 0;

  std::string AddressAt(const std::string& name) const { return fmt::format("tcp://{}:{} {}", name, port, key); }
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
  constexpr std::size_t kScheme = 6;  // tcp://
  const std::size_t colon = endpoint.rfind(':');
  if (!endpoint.starts_with("tcp://") || colon <= kScheme || key.size() != 40 || run.size() != 16 ||
      run.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw UserError(
        fmt::format("--join: '{}' is no address of a run; write its directory, or the line in its join file "
                    "(tcp://HOST:PORT KEY RUN)",
                    text));
  }
  return {endpoint.substr(kScheme, colon - kScheme), endpoint.substr(colon + 1), key, std::stoull(run, nullptr, 16)};
}

// The questions of a job's first rank.
class Asking {
 public:
  // UserError: nobody answers.
  Asking(const Door& door, const World& world, const std::string& where) : door_(door), world_(world) {
    // The run's own machine need not know its name, and a name may be known by other means than the network.
    std::vector<std::string> hosts = {door.host};
    if (world.local_ranks() == world.size() && door.host != kLoopBack) {
      hosts.insert(door.host == world.host() ? hosts.begin() : hosts.end(), kLoopBack);
    }
    std::string problems;
    for (const std::string& host : hosts) {
      try {
        address_ = door.AddressAt(host);
        client_ = MakeClient(address_, kJoinSeconds);
        Ask();
        return;
      } catch (const CoordinatorLost& lost) {
        problems += fmt::format("\n  {}", lost.what());
      }
    }
    throw UserError(fmt::format(
        "--join {}: nobody answers:{}\nEither the run has ended or was killed, or this machine does not reach "
        "the coordinator's: its name is not known here, a firewall closes the port, or there are several "
        "networks. Then start (or resume) the run with ranks/host=NAME_OR_ADDRESS, and ranks/port=PORT for "
        "a firewall; or join with the line of its join file and another host in it",
        where, problems));
  }

  // Under which the coordinator answers.
  const std::string& address() const { return address_; }

  // The Welcome, encoded; "": the run lets this host wait, which takes a part of that time. UserError: it takes no
  // jobs, or this one is told to stop.
  std::string Admission() {
    const auto* wait = std::get_if<Wait>(&reply_);
    if (wait != nullptr) {
      if (!std::exchange(told_, true)) {
        LogLine(fmt::format("the run lets this host wait {:.1f} s, because its last ranks were lost at once",
                            wait->milliseconds / 1000.0));
      }
      if (!StopSignal().empty()) throw UserError("--join: told to stop before the run let this host in");
      // Short, so that the end of the run or of this job is noticed.
      std::this_thread::sleep_for(std::chrono::milliseconds(std::min(wait->milliseconds, kLongestPause)));
      try {
        Ask();
      } catch (const CoordinatorLost&) {
        throw UserError("--join: the run has ended, or was killed, before it let this host in");
      }
      return "";
    }
    if (const auto* failed = std::get_if<Failed>(&reply_)) throw UserError("--join: " + failed->text);
    SPOTLIGHT_REQUIRE(std::holds_alternative<Welcome>(reply_), "the coordinator's reply is none of Join's");
    const Bytes bytes = Encode(reply_, door_.run_id);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

 private:
  static constexpr const char* kLoopBack = "127.0.0.1";

  void Ask() {
    const Join join{world_.host(), static_cast<std::uint32_t>(world_.size())};
    reply_ = Decode(client_->Call(Encode(join, door_.run_id)), door_.run_id);
  }

  const Door& door_;
  const World& world_;
  std::string address_;
  std::unique_ptr<Client> client_;
  Message reply_;
  bool told_ = false;
};

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
  // One rank asks for all. What it hears goes around after each question: the others wait for it so long and no longer.
  std::optional<Asking> asking;
  if (world.rank() == 0) asking.emplace(door, world, command.join);
  std::string admission;
  while (admission.empty()) admission = world.Broadcast(asking ? asking->Admission() : "");
  const std::string address = world.Broadcast(asking ? asking->address() : "");
  asking.reset();
  const Message decoded = Decode(std::as_bytes(std::span(admission)), door.run_id);
  const auto& welcome = std::get<Welcome>(decoded);
  const std::string& directory = welcome.directory;
  Failpoint("join.welcomed");
  world.AssignExplorers();
  world.Part();
  Config config = ReadInputText(welcome.input, directory + " (the run's settings)", {});
  config.run.directory = directory;
  StartComputing(config, world);
  UseWindows(config, world);
  const Resources resources = LoadResources(config);
  RequireContentsOfRun(welcome.contents, resources, config);
  const std::uint32_t first = welcome.first_rank, rank = first + static_cast<std::uint32_t>(world.rank());
  OpenLog(fmt::format("{}/logs/rank_{:04}.log", directory, rank), false);
  LogLine(fmt::format("{} joins as rank {}, {} thread(s)", ProcessName(), rank, KernelThreads()));
  const std::unique_ptr<Client> client = MakeClient(address, std::chrono::minutes(10), std::to_string(rank));
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
