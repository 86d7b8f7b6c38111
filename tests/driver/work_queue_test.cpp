#include "driver/work_queue.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <utility>

#include "reward/evaluation.hpp"

namespace spotlight {
namespace {

// Latents of 2 numbers, windows of at most 2 steps.
class WorkQueueTest : public testing::Test {
 protected:
  WorkQueueTest() { config_.sampler.steps = 4; }
  ~WorkQueueTest() override { std::filesystem::remove_all(folder_); }

  TensorStore::Options Options() const {
    return {.path = folder_, .run = "a run", .sizes = {.latent = {1, 2}, .window = 2, .terms = 0}};
  }
  static Request RequestOf(std::uint64_t seed) {
    return {.kind = RequestKind::kRollout, .iteration = 3, .seed = seed, .window_begin = 1, .window_end = 3};
  }
  static Pull PullOf(std::uint32_t rank) {
    return {.rank = rank, .role = Role::kExplorer, .capacity = 16, .members = {rank}};
  }
  static Work LeaseOf(WorkQueue& queue, std::uint32_t rank, double now) {
    return queue
        .Lease(
            PullOf(rank), {static_cast<int>(rank)}, [](RequestKind, int) { return true; }, now)
        .value_or(Work{});
  }
  static Push ResultOf(std::uint32_t rank, const Work& work) {
    Push push{rank, {}, {}};
    for (const Request& request : work.requests) push.samples.push_back({.request = request});
    return push;
  }
  static DenoiseState After(std::uint32_t steps) {
    DenoiseState state{steps, {1.5F * static_cast<float>(steps), 2}, {}, {}};
    const std::uint32_t in_window = std::min(steps, 3U) - std::min(steps, 1U);
    state.log_probs.assign(in_window, -0.5F);
    state.trajectory.assign(in_window == 0 ? 0 : 2 * (in_window + (steps >= 3 ? 1 : 0)), 0.25F);
    return state;
  }

  Config config_;
  CostLedger ledger_{config_.cost};
  Roster roster_{ledger_};
  std::string folder_ = testing::TempDir() + "work_queue_" + std::to_string(getpid());
};

TEST_F(WorkQueueTest, ALostWorkersRequestsGoOnFromTheirLastCommit) {
  TensorStore store(Options());
  WorkQueue queue(config_, &store, 4, false);
  queue.BeginIteration(3);
  queue.Add({RequestOf(1), RequestOf(2)}, roster_);
  const Work first = LeaseOf(queue, 7, 0);
  ASSERT_EQ(first.requests.size(), 2U);
  EXPECT_TRUE(first.states.empty());
  queue.Accept(CommitStates{7, first.requests, {After(2), After(2)}}, 1);
  EXPECT_EQ(queue.Lose(7), 2U);
  // Too late: its lease has ended.
  queue.Accept(CommitStates{7, first.requests, {After(3), After(3)}}, 2);

  const Work second = LeaseOf(queue, 8, 3);
  ASSERT_EQ(second.states.size(), 2U);
  EXPECT_EQ(second.states[0].steps, 2U);
  EXPECT_EQ(second.states[0].latents, After(2).latents);
  EXPECT_EQ(second.states[1].trajectory, After(2).trajectory);
  Push late{7, {Sample{.request = first.requests[0]}}};
  EXPECT_EQ(queue.Accept(std::move(late), 4), 0);
  EXPECT_FALSE(queue.Done(RequestKind::kRollout));
}

TEST_F(WorkQueueTest, ExplorationThatMayBeCutIsNotOneBatchOfOneWorker) {
  config_.explore.seeds = 16;
  for (const auto budget : {ExploreConfig::Budget::kDeadline, ExploreConfig::Budget::kFixed}) {
    config_.explore.budget = budget;
    WorkQueue queue(config_, nullptr, 4, false);
    std::vector<Request> requests(16, Request{.kind = RequestKind::kExplore});
    queue.Add(std::move(requests), roster_);
    EXPECT_EQ(LeaseOf(queue, 7, 0).requests.size(), budget == ExploreConfig::Budget::kFixed ? 16U : 8U);
  }
}

TEST_F(WorkQueueTest, AWorkerThatNeverCommitsMayBeSlow) {
  config_.sampler.steps = 20;
  WorkQueue queue(config_, nullptr, 4, false);
  queue.BeginIteration(3);
  double now = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    queue.Add({RequestOf(seed)}, roster_);
    const Work work = LeaseOf(queue, 1, now);
    ASSERT_EQ(work.requests.size(), 1U) << seed;
    now += 700;
    queue.Expire(now);  // of the first batch, which nobody has measured, the lease runs out
    EXPECT_EQ(LeaseOf(queue, 2, now).requests.size(), 0U + (seed == 1 ? 1 : 0)) << seed;
    EXPECT_EQ(queue.Accept(ResultOf(1, work), now), 20) << seed;
    EXPECT_TRUE(queue.Done(RequestKind::kRollout));
  }
}

TEST_F(WorkQueueTest, DecodingAndJudgingMayTakeLongerThanSteps) {
  TensorStore store(Options());
  WorkQueue queue(config_, &store, 4, false);
  queue.BeginIteration(3);
  double now = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    queue.Add({RequestOf(seed)}, roster_);
    const Work work = LeaseOf(queue, 7, now);
    for (std::uint32_t step = 1; step < 4; ++step) queue.Accept(CommitStates{7, work.requests, {After(step)}}, ++now);
    now += 100;
    queue.Expire(now);
    EXPECT_TRUE(LeaseOf(queue, 8, now).requests.empty()) << seed;
    queue.Accept(ResultOf(7, work), now);
  }
  EXPECT_TRUE(queue.silent().empty());
}

TEST_F(WorkQueueTest, ACommitIsASignOfLifeWhateverTheStoreDoesWithIt) {
  TensorStore store(Options());
  store.Forget(4);  // it refuses those of iteration 3
  for (TensorStore* const refuses : {&store, static_cast<TensorStore*>(nullptr)}) {
    WorkQueue queue(config_, refuses, 4, false);
    double now = 0;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      queue.Add({RequestOf(seed)}, roster_);
      const Work work = LeaseOf(queue, 7, now);
      for (std::uint32_t step = 1; step < 4; ++step) {
        now += seed == 1 ? 1 : 9;
        queue.Expire(now);
        queue.Accept(CommitStates{7, work.requests, {After(step)}}, now);
      }
      EXPECT_TRUE(LeaseOf(queue, 8, now).requests.empty()) << seed;
      queue.Accept(ResultOf(7, work), now);
    }
  }
}

TEST_F(WorkQueueTest, WhoGivesNoSignLosesItsRequestsSoon) {
  TensorStore store(Options());
  WorkQueue queue(config_, &store, 4, false);
  queue.BeginIteration(3);
  Work work;
  for (std::uint64_t seed = 1; seed <= 2; ++seed) {
    queue.Add({RequestOf(seed)}, roster_);
    work = LeaseOf(queue, 7, 0);
    if (seed == 1) queue.Accept(ResultOf(7, work), 8);
  }
  queue.Expire(23.9);  // three times 8 s
  EXPECT_TRUE(LeaseOf(queue, 8, 23.9).requests.empty());
  EXPECT_TRUE(queue.silent().empty());
  queue.Expire(25);
  EXPECT_TRUE(queue.silent().contains(7));
  EXPECT_EQ(LeaseOf(queue, 8, 25).requests.size(), 1U);
  queue.Release(7);
  EXPECT_TRUE(queue.silent().empty());
}

TEST_F(WorkQueueTest, AnotherDegreeIsAnotherSpeed) {
  WorkQueue queue(config_, nullptr, 4, false);
  const auto lease = [&](std::uint64_t seed, double now, std::vector<std::uint32_t> members) {
    queue.Add({RequestOf(seed)}, roster_);
    Pull pull = PullOf(7);
    pull.members = std::move(members);
    return queue
        .Lease(
            pull, {7}, [](RequestKind, int) { return true; }, now)
        .value();
  };
  queue.Accept(ResultOf(7, lease(1, 0, {7, 8, 9, 10})), 4);
  lease(2, 4, {7});
  queue.Expire(100);  // that of four would have run out
  EXPECT_TRUE(LeaseOf(queue, 8, 100).requests.empty());
}

TEST_F(WorkQueueTest, EvaluationsAreKeptInTheirIteration) {
  config_.eval.seeds = 2;
  config_.eval.steps = 4;
  const std::vector<Request> requests = EvaluationRequests(config_, {Prompt{}}, 3, 0);
  {
    TensorStore store(Options());
    WorkQueue queue(config_, &store, 4, false);
    queue.BeginIteration(3);
    queue.Add(requests, roster_);
    const Work work = LeaseOf(queue, 7, 0);
    ASSERT_EQ(work.requests.size(), 2U);
    queue.Accept(CommitStates{7, {work.requests[1]}, {{.steps = 2, .latents = {1, 2}}}}, 1);
    queue.Accept(Push{7, {Sample{.request = work.requests[0], .reward = 0.75}}, {}}, 1);
    ASSERT_TRUE(store.WaitWritten(10));
  }
  TensorStore store(Options());
  WorkQueue queue(config_, &store, 4, false);
  queue.BeginIteration(3);
  queue.Add(requests, roster_);
  EXPECT_EQ(queue.CountDone(RequestKind::kEvaluate), 1U);
  EXPECT_EQ(LeaseOf(queue, 7, 0).states.at(0).steps, 2U);
}

TEST_F(WorkQueueTest, AMalformedCommitIsNotKept) {
  TensorStore store(Options());
  WorkQueue queue(config_, &store, 4, false);
  queue.BeginIteration(3);
  queue.Add({RequestOf(1)}, roster_);
  const Work work = LeaseOf(queue, 7, 0);
  DenoiseState wrong = After(2);
  wrong.log_probs.clear();
  queue.Accept(CommitStates{7, work.requests, {wrong}}, 1);
  queue.Accept(CommitStates{7, work.requests, {}}, 1);
  queue.Lose(7);
  EXPECT_TRUE(LeaseOf(queue, 8, 2).states.empty());
}

TEST_F(WorkQueueTest, WhatIsNotFiniteIsLeftOutAndNotKept) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  TensorStore store(Options());
  WorkQueue queue(config_, &store, 4, false);
  queue.BeginIteration(3);
  queue.Add({RequestOf(1), RequestOf(2), RequestOf(3)}, roster_);
  const Work work = LeaseOf(queue, 7, 0);
  DenoiseState wrong = After(2);
  wrong.latents[0] = kNan;
  queue.Accept(CommitStates{7, {work.requests[0]}, {wrong}}, 1);
  EXPECT_FALSE(store.State(work.requests[0]));
  const StepCoefficients step{.sigma = 0.5F};
  Push push{7, {}, {}};
  for (const Request& request : work.requests) {
    push.samples.push_back({.request = request,
                            .reward = 0.75,
                            .terms = {},
                            .latents = {1, 2, 3, 4, 5, 6},
                            .log_probs = {-1, -2},
                            .steps = {step, step}});
  }
  push.samples[0].reward = std::numeric_limits<double>::infinity();
  push.samples[1].latents[5] = -kNan;
  EXPECT_EQ(queue.Accept(std::move(push), 2), 4) << "the steps of one";
  EXPECT_TRUE(queue.Done(RequestKind::kRollout));
  const std::vector<Sample> samples = queue.Take(RequestKind::kRollout);
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_TRUE(std::isnan(samples[0].reward) && std::isnan(samples[1].reward));
  EXPECT_EQ(samples[2].reward, 0.75);
  EXPECT_EQ(store.Samples(3).size(), 1U);
}

TEST_F(WorkQueueTest, WhatHasAnotherShapeIsRefusedAndGoesToOthers) {
  TensorStore store(Options());
  WorkQueue queue(config_, &store, 4, false);
  queue.BeginIteration(3);
  queue.Add({RequestOf(1)}, roster_);
  const Work work = LeaseOf(queue, 7, 0);
  const Sample sample{.request = work.requests[0], .rank = 7};
  Sample more_terms = sample, more_latents = sample;
  more_terms.terms = {0.5};
  more_latents.latents = {1, 2, 3};
  EXPECT_EQ(queue.Accept(Push{7, {more_terms, more_latents}, {}}, 1), 0);
  DenoiseState longer = After(2);
  for (std::vector<float>* part : {&longer.latents, &longer.trajectory}) part->insert(part->end(), part->size(), 1.0F);
  queue.Accept(CommitStates{7, work.requests, {longer}}, 1);
  EXPECT_FALSE(queue.Done(RequestKind::kRollout));
  queue.Release(7);
  EXPECT_EQ(LeaseOf(queue, 8, 2).requests.size(), 1U);
}

TEST_F(WorkQueueTest, ARestartRepeatsNeitherFinishedNorCommittedWork) {
  const StepCoefficients step{.sigma = 0.5F};
  {
    TensorStore store(Options());
    WorkQueue queue(config_, &store, 4, false);
    queue.BeginIteration(3);
    queue.Add({RequestOf(1), RequestOf(2), RequestOf(3)}, roster_);
    const Work work = LeaseOf(queue, 7, 0);
    ASSERT_EQ(work.requests.size(), 3U);
    Sample sample{.request = work.requests[1], .reward = 0.75};
    sample.latents = {1, 2, 3, 4, 5, 6};
    sample.log_probs = {-1, -2};
    sample.steps = {step, step};
    EXPECT_EQ(queue.Accept(Push{7, {sample}, {}}, 1), 4) << "its steps";
    queue.Accept(CommitStates{7, {work.requests[2]}, {After(3)}}, 1);
    ASSERT_TRUE(store.WaitWritten(10));
  }
  TensorStore store(Options());
  WorkQueue queue(config_, &store, 4, false);
  queue.BeginIteration(3);
  queue.Add({RequestOf(1), RequestOf(2), RequestOf(3)}, roster_);
  EXPECT_EQ(queue.CountDone(RequestKind::kRollout), 1U);
  // Those that have come further are first; a batch is at one step.
  const Work committed = LeaseOf(queue, 8, 0);
  ASSERT_EQ(committed.requests.size(), 1U);
  EXPECT_EQ(committed.requests[0].seed, 3U);
  EXPECT_EQ(committed.states.at(0).steps, 3U);
  const Work fresh = LeaseOf(queue, 9, 0);
  ASSERT_EQ(fresh.requests.size(), 1U);
  EXPECT_EQ(fresh.requests[0].seed, 1U);
  EXPECT_TRUE(fresh.states.empty());
  const std::vector<Sample> samples = queue.Take(RequestKind::kRollout);
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(samples[0].request.seed, 2U);
  EXPECT_EQ(samples[0].reward, 0.75);
  EXPECT_EQ(samples[0].latents, (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(WorkQueueTest, ADegreeIsChosenOnceItWasMeasuredBesideOne) {
  config_.ranks.explorer_sp = 2;
  for (const std::uint32_t rank : {7, 8}) {
    roster_.Arrive({.rank = rank, .role = Role::kExplorer, .host = "here"}, 0);
  }
  WorkQueue queue(config_, nullptr, 4, false);
  // One request at a time by one rank in 4 s, by two in 1 s: two are worth their while.
  double now = 0;
  for (const double seconds : {4.0, 1.0}) {
    queue.Add({RequestOf(static_cast<std::uint64_t>(seconds))}, roster_);
    EXPECT_EQ(queue.degree(), 0);
    Pull pull = PullOf(7);
    if (seconds == 1) pull.members = {7, 8};
    const Work work = queue
                          .Lease(
                              pull, {7}, [](RequestKind, int) { return true; }, now)
                          .value();
    now += seconds;
    queue.Accept(Push{7, {Sample{.request = work.requests[0]}}, {}}, now);
  }
  queue.Add({RequestOf(9)}, roster_);
  EXPECT_EQ(queue.degree(), 2);
}

}  // namespace
}  // namespace spotlight
