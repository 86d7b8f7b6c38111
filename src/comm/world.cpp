#include "comm/world.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "comm/liveness.hpp"
#include "comm/mpi_call.hpp"
#include "comm/node_table.hpp"
#include "comm/peer_windows.hpp"
#include "comm/watchdog.hpp"
#if __has_include(<mpi-ext.h>)
#include <mpi-ext.h>
#endif

namespace spotlight {
namespace {

bool LaunchedByMpirun() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr ||
         std::getenv("PMI_RANK") != nullptr;
}

std::string HostName() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

bool HasFaultTolerance() {
#ifdef OMPI_HAVE_MPI_EXT_FTMPI
  void* value = nullptr;
  int found = 0;
  MPI_CHECK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPIX_FT, &value, &found));
  return found != 0 && *static_cast<int*>(value) != 0;
#else
  return false;
#endif
}

struct Process {
  std::string name;
  char state = 'Z';
  pid_t parent = 0;
};

// `folder`: /proc/NUMBER. State Z: there is none any more.
Process ReadProcess(const std::filesystem::path& folder) {
  std::ifstream file(folder / "stat");
  std::string text;  // NUMBER (NAME) STATE PARENT ...
  std::getline(file, text);
  const std::size_t name = text.find('('), end = text.rfind(')');
  Process process;
  if (end == std::string::npos || name > end) return process;
  process.name = text.substr(name + 1, end - name - 1);
  if (std::sscanf(text.c_str() + end + 1, " %c %d", &process.state, &process.parent) != 2) process.state = 'Z';
  return process;
}

int LivingChildren(pid_t parent) {
  int living = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    if (std::isdigit(static_cast<unsigned char>(entry->path().filename().c_str()[0])) == 0) continue;
    const Process process = ReadProcess(entry->path());
    living += process.parent == parent && process.state != 'Z' && process.state != 'X' ? 1 : 0;
  }
  return living;
}

// Whether MPI's start is hopeless: the daemon that starts this node's ranks is gone, or has had fewer living children
// than ranks for longer than it takes to start them. Where something else starts them, as a script around each rank, it
// cannot be told.
std::function<bool()> HopelessStart() {
  const char* const size = std::getenv("OMPI_COMM_WORLD_LOCAL_SIZE");
  const pid_t daemon = getppid();
  if (size == nullptr || !ReadProcess(fmt::format("/proc/{}", daemon)).name.starts_with("prte")) return {};
  return [ranks = std::atoi(size), daemon, whole_at = std::chrono::steady_clock::now()]() mutable {
    constexpr std::chrono::seconds kStarting{5};
    const auto now = std::chrono::steady_clock::now();
    if (LivingChildren(daemon) >= ranks) whole_at = now;
    return getppid() != daemon || now - whole_at > kStarting;
  };
}

// All memory that a file in /dev/shm may need, if there is much more than that: a small one is left to the weights.
void AllocateWhole(const char* path) {
  constexpr std::uint64_t kMuchMore = 8;
  const int file = open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return;  // another rank has unlinked it
  struct stat status {};
  struct statvfs room {};
  if (fstat(file, &status) == 0 && fstatvfs(file, &room) == 0 && status.st_size > 0 &&
      room.f_bavail * room.f_frsize >= kMuchMore * static_cast<std::uint64_t>(status.st_size)) {
    static_cast<void>(posix_fallocate(file, 0, status.st_size));
  }
  close(file);
}

// MPI keeps a named file for the messages of each rank of the node, which nobody removes if the rank is killed. Once
// all have mapped all, the names are of no more use. It uses its memory as it goes: if /dev/shm is full by then, the
// rank that touches a new page dies, and so do all that regroup at that moment. So the memory (16 MiB a rank) is taken
// now.
void UnlinkMessageFiles() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t path = line.find("/dev/shm/sm_segment.");
    if (path == std::string::npos) continue;
    const std::string name = line.substr(path, line.find(' ', path) - path);
    AllocateWhole(name.c_str());
    unlink(name.c_str());
  }
}

}  // namespace

enum class World::Call : int { kBroadcast = 1, kAllGather, kAgreeExit };

WorldEnding::WorldEnding(int code)
    : std::runtime_error(fmt::format("another rank ends the run (exit code {})", code)), code_(code) {}

std::string MpiVersion() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);  // may be called before MPI_Init
  const std::string all(text, static_cast<std::size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));
}

int WorseExit(int a, int b) {
  constexpr std::array<int, 4> kFromBest = {kExitFinished, kExitStopped, kExitUsage, kExitFile};
  const auto severity = [&](int code) {
    return std::find(kFromBest.begin(), kFromBest.end(), code) - kFromBest.begin();
  };
  return severity(a) >= severity(b) ? a : b;
}

World::World(int* argc, char*** argv, std::chrono::milliseconds limit) : limit_(limit), host_(HostName()) {
  SetProcessName(fmt::format("rank 0 on {}", host_));
  if (!LaunchedByMpirun()) return;
  std::signal(SIGPIPE, SIG_IGN);  // MPI may write to the socket of a peer that has died
  // A rank that dies meanwhile keeps the others waiting inside MPI_Init.
  const Watchdog watchdog("starting MPI", std::min<std::chrono::milliseconds>(limit, std::chrono::minutes(1)),
                          kExitInternal, HopelessStart());
  int provided = 0;
  MPI_CHECK(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
  mpi_ = std::make_unique<Mpi>();
  MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  MPI_CHECK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
  MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &mpi_->world));
  MPI_CHECK(MPI_Comm_set_errhandler(mpi_->world, MPI_ERRORS_RETURN));
  MPI_CHECK(MPI_Comm_rank(mpi_->world, &rank_));
  MPI_CHECK(MPI_Comm_size(mpi_->world, &size_));
  SetProcessName(fmt::format("rank {} on {}", rank_, host_));
  if (rank_ == 0) WriteExitCode(kExitInternal, false);  // stands if all die
  TouchAll(mpi_->world, limit_);
  fault_tolerant_ = HasFaultTolerance();

  MPI_Comm node = MPI_COMM_NULL;
  MPI_CHECK(MPI_Comm_split_type(mpi_->world, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node));
  MPI_CHECK(MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN));
  MPI_CHECK(MPI_Comm_size(node, &local_ranks_));
  MPI_CHECK(MPI_Comm_rank(node, &local_index_));
  first_local_rank_ = rank_;
  MPI_CHECK(MPI_Bcast(&first_local_rank_, 1, MPI_INT, 0, node));
  // Two tables, the second one on a page of its own.
  constexpr std::size_t kPage = 4096;
  const std::size_t first = (Liveness::BytesFor(local_ranks_) + kPage - 1) / kPage * kPage;
  node_table_ = MapNodeTable(node, first + PeerWindows::TableBytes(local_ranks_));
  if (node_table_ != nullptr) window_table_ = static_cast<std::byte*>(node_table_) + first;
  MPI_CHECK(MPI_Comm_free(&node));
  UnlinkMessageFiles();
}

World::World(Alone) : limit_(kLimit), host_(HostName()) {}

World::~World() {
  if (!finished_) Finish(AgreeExit(kExitInternal));
}

void World::AssignRoles(int trainers) {
  const char* wish = std::getenv("SPOTLIGHT_ROLE");
  const std::vector<std::string> wishes = mpi_ ? AllGather(wish != nullptr ? wish : "") : std::vector<std::string>(1);
  const std::vector<Role> roles = PlanRoles(trainers, wishes);
  roles_ = roles;
  role_ = roles[static_cast<std::size_t>(rank_)];
  trainers_ = trainers;
  if (role_ != Role::kAll) {
    explorers_ = size_ - 1 - trainers;
    coordinator_ = static_cast<int>(std::find(roles.begin(), roles.end(), Role::kCoordinator) - roles.begin());
    trainer_index_ =
        role_ == Role::kTrainer ? static_cast<int>(std::count(roles.begin(), roles.begin() + rank_, role_)) : -1;
  }
  SplitByRole();
}

void World::AssignExplorers() {
  roles_.assign(static_cast<std::size_t>(size_), Role::kExplorer);
  role_ = Role::kExplorer;
  trainers_ = 0;
  trainer_index_ = -1;
  explorers_ = size_;
  coordinator_ = -1;
  SplitByRole();
}

bool World::UseWindows(std::unique_ptr<PeerMemory> memory, std::size_t slot_bytes) {
  uses_windows_ = true;
  if (memory == nullptr || window_table_ == nullptr) return false;
  windows_ = std::make_unique<PeerWindows>(std::move(memory), window_table_, local_ranks_, local_index_, slot_bytes);
  return true;
}

void World::SplitByRole() {
  SetProcessName(fmt::format("rank {} ({}) on {}", rank_, RoleName(role_), host_));
  if (!mpi_) return;
  const Watchdog watchdog("splitting the world", limit_, kExitInternal);
  MPI_Comm same_role = MPI_COMM_NULL;
  MPI_CHECK(MPI_Comm_split(mpi_->world, static_cast<int>(role_), rank_, &same_role));
  MPI_CHECK(MPI_Comm_set_errhandler(same_role, MPI_ERRORS_RETURN));
  TouchAll(same_role, limit_);
  (role_ == Role::kTrainer ? mpi_->trainers : mpi_->pool) = same_role;
}

// All ranks tell each other which collective they are in. Returns the exit code of those that are leaving.
int World::Meet(Call call, int exit_code) {
  const std::array<int, 2> mine = {static_cast<int>(call), exit_code};
  std::vector<int> all(2 * static_cast<std::size_t>(size_));
  std::vector<MPI_Request> request(1);
  MPI_CHECK(MPI_Iallgather(mine.data(), 2, MPI_INT, all.data(), 2, MPI_INT, mpi_->world, request.data()));
  WaitAll(mpi_->world, request, limit_);
  bool same = true;
  bool ending = false;
  int worst = kExitFinished;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    same = same && all[i] == mine[0];
    ending = ending || all[i] == static_cast<int>(Call::kAgreeExit);
    if (WorseExit(worst, all[i + 1]) != worst) {
      worst = all[i + 1];
      reporter_ = static_cast<int>(i / 2);
    }
  }
  if (ending && call != Call::kAgreeExit) throw WorldEnding(worst);
  SPOTLIGHT_REQUIRE(same || ending, "ranks are in different collective calls");
  return worst;
}

std::string World::Broadcast(const std::string& text, int root) {
  if (!mpi_) return text;
  Meet(Call::kBroadcast, kExitFinished);
  std::string result = rank_ == root ? text : std::string();
  std::uint64_t length = result.size();
  std::vector<MPI_Request> request(1);
  MPI_CHECK(MPI_Ibcast(&length, 1, MPI_UINT64_T, root, mpi_->world, request.data()));
  WaitAll(mpi_->world, request, limit_);
  SPOTLIGHT_REQUIRE(length <= INT_MAX, "text to broadcast");
  result.resize(length);
  MPI_CHECK(MPI_Ibcast(result.data(), static_cast<int>(length), MPI_CHAR, root, mpi_->world, request.data()));
  WaitAll(mpi_->world, request, limit_);
  return result;
}

std::vector<std::string> World::AllGather(const std::string& text) {
  if (!mpi_) return {text};
  Meet(Call::kAllGather, kExitFinished);
  const auto n = static_cast<std::size_t>(size_);
  const int length = static_cast<int>(text.size());
  std::vector<int> lengths(n);
  std::vector<MPI_Request> request(1);
  MPI_CHECK(MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, mpi_->world, request.data()));
  WaitAll(mpi_->world, request, limit_);
  std::vector<int> begins(n);
  std::exclusive_scan(lengths.begin(), lengths.end(), begins.begin(), 0);
  std::string all(static_cast<std::size_t>(begins.back() + lengths.back()), '\0');
  MPI_CHECK(MPI_Iallgatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(), begins.data(), MPI_CHAR,
                            mpi_->world, request.data()));
  WaitAll(mpi_->world, request, limit_);
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < n; ++r) {
    texts.push_back(all.substr(static_cast<std::size_t>(begins[r]), static_cast<std::size_t>(lengths[r])));
  }
  return texts;
}

int World::AgreeExit(int code) noexcept {
  if (!mpi_) return code;
  try {
    return Meet(Call::kAgreeExit, code);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    reporter_ = rank_;
    return WorseExit(code, kExitInternal);
  }
}

int World::Finish(int code) noexcept {
  if (finished_) return code;
  finished_ = true;
  if (!mpi_) return code;
  if (rank_ == 0) WriteExitCode(code, true);
  const Watchdog watchdog("ending MPI", std::min<std::chrono::milliseconds>(limit_, std::chrono::seconds(10)), code);
  if (mpi_->trainers != MPI_COMM_NULL) MPI_Comm_free(&mpi_->trainers);
  MPI_Comm_free(&mpi_->world);
  MPI_Finalize();
  return code;
}

void World::Leave(int code) noexcept {
  // A spot job has no coordinator: its ranks come and go.
  if (rank_ == coordinator_ || coordinator_ < 0) WriteExitCode(code, coordinator_ >= 0);
  std::cout.flush();
  std::fflush(nullptr);
  _exit(mpi_ ? kExitFinished : code);
}

void World::LeaveAfterLoss(int code) noexcept {
  WriteExitCode(code, role_ != Role::kExplorer);
  Leave(code);
}

void World::Abort(int code) {
  if (mpi_) {
    WriteExitCode(code, true);
    MPI_Abort(MPI_COMM_WORLD, code);
  }
  _exit(code);
}

// For scripts/mpirun.sh: mpirun itself hides the ranks' exit codes when fault tolerance is on. The first final code
// stays; on other nodes there is no such file.
void World::WriteExitCode(int code, bool final) const noexcept {
  const char* path = std::getenv("SPOTLIGHT_EXIT_FILE");
  if (path == nullptr) return;
  std::ifstream before(path);
  std::string word;
  if (!before || (before >> word >> word && word == "final")) return;
  std::ofstream(path) << code << (final ? " final\n" : "\n");
}

}  // namespace spotlight
