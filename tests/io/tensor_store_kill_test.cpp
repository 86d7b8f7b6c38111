// kill -9 at random instants, again and again over the same files: what a child saw written is there afterwards, and
// nothing that can be read is a mixture. SPOTLIGHT_KILLS: how often (200 by default).
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <random>

#include "tensor_store_content.hpp"

namespace spotlight {
namespace {

constexpr std::uint32_t kRequests = 10;
const Shape kLatent = {64, 64};  // 16 KiB: several pages, so that a write can be cut
constexpr std::size_t kFloats = 64 * 64;
constexpr std::uint8_t kFinished = kSteps + 1;

// Steps of each request, kFinished at the end.
struct Written {
  std::uint32_t iteration = 1;
  std::array<std::uint8_t, kRequests> steps{};
};

Request RequestOf(std::uint32_t prompt, std::uint32_t iteration) {
  return StoreRequest(prompt, prompt % 4 == 3 ? RequestKind::kExplore : RequestKind::kRollout, iteration);
}

// Advances random requests by a step, iteration after iteration, and tells `report` from time to time what is written.
[[noreturn]] void WorkUntilKilled(const TensorStore::Options& options, Written progress, std::uint64_t seed,
                                  int report) {
  TensorStore store(options);
  std::mt19937_64 random(seed);
  const auto tell = [&] {
    if (write(report, &progress, sizeof(progress)) != sizeof(progress)) std::_Exit(1);
  };
  while (true) {
    const auto prompt = static_cast<std::uint32_t>(random() % kRequests);
    const Request request = RequestOf(prompt, progress.iteration);
    std::uint8_t& steps = progress.steps[prompt];
    if (steps < kSteps) {
      ++steps;
      store.CommitState(request, StoreState(request, steps, kFloats));
    } else if (steps == kSteps) {
      steps = kFinished;
      store.CommitSample(StoreSample(request, kFloats));
    }
    if (random() % 4 == 0 && store.WaitWritten(10)) tell();
    const bool all = std::all_of(progress.steps.begin(), progress.steps.end(), [](auto s) { return s == kFinished; });
    if (all) {
      progress = {progress.iteration + 1, {}};
      tell();  // from now on the iteration before may be gone
      store.Forget(progress.iteration);
    }
  }
}

class TensorStoreKillTest : public IoTest {
 protected:
  // Verifies everything that the store has against `at_least`; returns what is there.
  static Written Verify(const TensorStore::Options& options, const Written& at_least) {
    TensorStore store(options);
    Written found{.iteration = at_least.iteration};
    for (std::uint32_t prompt = 0; prompt < kRequests; ++prompt) {
      const Request request = RequestOf(prompt, found.iteration);
      if (const std::optional<DenoiseState> state = store.State(request)) {
        found.steps[prompt] = static_cast<std::uint8_t>(state->steps);
        ExpectSame(*state, StoreState(request, state->steps, kFloats));
      }
    }
    for (const Sample& sample : store.Samples(found.iteration)) {
      const std::uint32_t prompt = sample.request.prompt_index;
      found.steps.at(prompt) = kFinished;
      ExpectSame(sample, StoreSample(RequestOf(prompt, found.iteration), kFloats));
    }
    for (std::uint32_t prompt = 0; prompt < kRequests; ++prompt) {
      EXPECT_GE(+found.steps[prompt], +at_least.steps[prompt]) << "prompt " << prompt;
    }
    for (const std::string& problem : store.Problems()) {
      EXPECT_THAT(problem, ::testing::HasSubstr("a record is unfinished")) << "the kill damaged what was whole";
    }
    return found;
  }
};

TEST_F(TensorStoreKillTest, NothingWrittenIsLostAndNothingTornIsSeen) {
  const char* const wanted = std::getenv("SPOTLIGHT_KILLS");
  const int kills = wanted == nullptr ? 200 : std::atoi(wanted);
  TensorStore::Options options = StoreOptions(Path("store"), kLatent);
  std::mt19937_64 random(20250101);
  Written progress;
  int reports = 0;
  for (int kill_number = 0; kill_number < kills && !HasFailure(); ++kill_number) {
    SCOPED_TRACE(testing::Message() << "kill " << kill_number);
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) WorkUntilKilled(options, progress, random(), ends[1]);
    close(ends[1]);
    // From its start on, or, every other time, from where it has begun to write.
    pollfd report{.fd = ends[0], .events = POLLIN};
    if (kill_number % 2 == 1) poll(&report, 1, 10000);
    usleep(static_cast<useconds_t>(random() % 12000));
    ASSERT_EQ(kill(child, SIGKILL), 0);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the child died before: " << status;
    Written seen = progress;
    for (Written next; read(ends[0], &next, sizeof(next)) == sizeof(next); ++reports) seen = next;
    close(ends[0]);
    progress = Verify(options, seen);
  }
  // Else the kills came too early to show anything.
  EXPECT_GE(reports, kills / 2);
  EXPECT_GT(progress.iteration, static_cast<std::uint32_t>(kills / 100));
}

}  // namespace
}  // namespace spotlight
