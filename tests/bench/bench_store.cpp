// Commits to the tensor store at the size and rate of 64 workers (latents of 1280 px, a step every 0.3 s), then 640 at
// once, beside write() of the same bytes into the same folder.
//
//   bench_store FOLDER [SECONDS]
//
// What a commit costs its caller is the time of copying the state (from where a message was received, say) and of
// CommitState; the caller's CPU time is what a busy machine disturbs less. Prints a table; fails if a commit was
// refused at the workers' rate, or if one costs more than 0.5 % of a step on average.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <numeric>
#include <thread>

#include "io/tensor_store.hpp"
#include "io/tensor_store_folder.hpp"
#include "timing.hpp"

namespace spotlight {
namespace {

constexpr std::uint32_t kWorkers = 64, kSteps = 10, kWindowBegin = 3, kWindow = 2;
constexpr double kStepSeconds = 0.3, kGoalPercent = 0.5;
const Shape kLatent = {6400, 64};
constexpr std::size_t kFloats = 6400 * 64;

TensorStore::Options OptionsFor(const std::string& folder) {
  return {.path = folder, .run = "benchmark", .sizes = {.latent = kLatent, .window = kWindow, .terms = 3}};
}

Seconds ThreadNow() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return {Now().wall, static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec)};
}

// One worker's requests, step by step.
class Worker {
 public:
  explicit Worker(std::uint32_t number) : number_(number) { Begin(); }

  // The next commit; returns what it took, `cpu` being this thread's.
  Seconds Step(TensorStore& store) {
    ++state_.steps;
    state_.latents[state_.steps] += 1;
    if (state_.steps > kWindowBegin && state_.steps <= kWindowBegin + kWindow) {
      Remember();
      state_.log_probs.push_back(-1);
    }
    before_ = state_.latents;
    if (state_.steps == kWindowBegin + kWindow) Remember();
    const Seconds start = ThreadNow();
    if (state_.steps < kSteps) {
      store.CommitState(request_, state_);
      return ThreadNow() - start;
    }
    Sample sample{.request = request_, .terms = {0, 0, 0}, .latents = state_.trajectory};
    sample.log_probs = state_.log_probs;
    sample.steps.resize(kWindow);
    store.CommitSample(std::move(sample));
    const Seconds cost = ThreadNow() - start;
    if (number_ == 0 && request_.iteration > 1) store.Forget(request_.iteration);
    Begin();
    return cost;
  }

 private:
  void Begin() {
    ++request_.iteration;
    request_.prompt_index = number_;
    request_.window_begin = kWindowBegin;
    request_.window_end = kWindowBegin + kWindow;
    state_ = {.latents = std::vector<float>(kFloats, static_cast<float>(number_))};
    before_ = state_.latents;
  }
  void Remember() { state_.trajectory.insert(state_.trajectory.end(), before_.begin(), before_.end()); }

  std::uint32_t number_;
  Request request_;
  DenoiseState state_;
  std::vector<float> before_;
};

// Bytes a second of write() in blocks of the latents' size into a new file, at most `bytes`.
double PlainRate(const std::string& path, std::uint64_t bytes) {
  const std::vector<float> block(kFloats, 1);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  const double start = Now().wall;
  std::uint64_t done = 0;
  while (done < bytes) {
    const ssize_t written = write(file, block.data(), kFloats * sizeof(float));
    if (written <= 0) break;
    done += static_cast<std::uint64_t>(written);
  }
  const double seconds = Now().wall - start;
  close(file);
  unlink(path.c_str());
  return static_cast<double>(done) / seconds;
}

// The workers' rate for some seconds. False if the goal is missed.
bool RunPaced(const std::string& folder, double seconds) {
  TensorStore store(OptionsFor(folder));
  std::vector<Worker> workers;
  for (std::uint32_t i = 0; i < kWorkers; ++i) workers.emplace_back(i);
  std::vector<double> wall;
  double cpu = 0;
  const double start = Now().wall;
  const double other_cpu = Now().cpu - ThreadNow().cpu;
  const int commits = static_cast<int>(seconds / kStepSeconds * kWorkers);
  for (int i = 0; i < commits; ++i) {
    const double wait = start + i * kStepSeconds / kWorkers - Now().wall;
    if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
    const Seconds cost = workers[static_cast<std::size_t>(i) % kWorkers].Step(store);
    wall.push_back(1e3 * cost.wall);
    cpu += 1e3 * cost.cpu / commits;
  }
  const double committed = Now().wall - start;
  const bool all = store.WaitWritten(60);
  const double written = Now().wall - start;
  const double writer_cpu = Now().cpu - ThreadNow().cpu - other_cpu;
  const TensorStore::Counts counts = store.Count();
  std::sort(wall.begin(), wall.end());
  const double mean = std::accumulate(wall.begin(), wall.end(), 0.0) / commits;
  const auto quantile = [&](double q) { return wall[static_cast<std::size_t>(q * (commits - 1))]; };
  const auto percent = [](double milliseconds) { return milliseconds / kStepSeconds / 10; };
  fmt::print("\ntensor store: {} workers, 1.56 MiB every {} s each, for {:.1f} s\n", kWorkers, kStepSeconds, committed);
  fmt::print("  a commit costs its caller  {:.2f} ms = {:.2f} % of a step (CPU {:.2f} ms = {:.2f} %); ", mean,
             percent(mean), cpu, percent(cpu));
  fmt::print("p50 {:.2f}, p99 {:.2f}, max {:.2f} ms\n", quantile(0.5), quantile(0.99), quantile(1));
  fmt::print(
      "  written                    {:.0f} MB/s; the last {:.0f} ms after its commit; the writer takes {:.0f} % of a "
      "core\n",
      1e-6 * static_cast<double>(counts.bytes) / written, 1e3 * (written - committed), 100 * writer_cpu / written);
  fmt::print("  refused {}, overtaken {} of {} commits\n", counts.dropped, counts.superseded, commits);
  return all && counts.dropped == 0 && percent(cpu) <= kGoalPercent;
}

// Bytes a second of 640 commits that are there at once.
double BurstRate(const std::string& folder, std::uint64_t& bytes) {
  TensorStore store(OptionsFor(folder));
  std::vector<DenoiseState> states(kWorkers * kSteps, {.steps = 1, .latents = std::vector<float>(kFloats, 1)});
  const double start = Now().wall;
  Request request{.kind = RequestKind::kExplore};
  for (DenoiseState& state : states) {
    ++request.seed;
    store.CommitState(request, std::move(state));
  }
  store.WaitWritten(60);
  bytes = store.Count().bytes;
  return static_cast<double>(bytes) / (Now().wall - start);
}

int Main(const std::string& folder, double seconds) {
  const bool good = RunPaced(folder, seconds);
  RemoveTensorStore(folder);
  // By turns, because the disk's own rate changes from second to second.
  std::vector<double> ours, plain;
  for (int turn = 0; turn < 5; ++turn) {
    std::uint64_t bytes = 0;
    ours.push_back(BurstRate(folder, bytes));
    RemoveTensorStore(folder);
    plain.push_back(PlainRate(folder + ".plain", bytes));
  }
  std::sort(ours.begin(), ours.end());
  std::sort(plain.begin(), plain.end());
  fmt::print("  640 commits at once        {:.0f} MB/s; write() of as much {:.0f} MB/s: {:.2f} of the disk's rate\n",
             1e-6 * ours[2], 1e-6 * plain[2], ours[2] / plain[2]);
  if (!good) fmt::print("  GOAL MISSED: no commit refused and at most {} % of a step in CPU time\n", kGoalPercent);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "bench_store FOLDER [SECONDS]\n");
    return 2;
  }
  return spotlight::Main(argv[1], spotlight::CountArgument(argc - 1, argv + 1, 6));
}
