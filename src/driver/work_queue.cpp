#include "driver/work_queue.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "base/log.hpp"
#include "io/elements.hpp"
#include "schedule/membership.hpp"

namespace spotlight {
namespace {

constexpr double kLeaseFloor = 10;      // seconds: a machine may be busy with something else
constexpr double kFirstLease = 600;     // seconds: the first batch also loads weights
constexpr double kExpirySeconds = 0.5;  // between two looks for expired leases
constexpr double kStraggler = 3;        // a lease so many times older than usual is given out once more

bool AllFinite(const std::vector<float>& values) { return FindNotFinite(values) == values.size(); }

// Whether the parts of a state are those of its steps, and numbers.
bool Fits(const Request& request, const DenoiseState& state) {
  const std::uint32_t begin = std::min(state.steps, request.window_begin),
                      end = std::min(state.steps, request.window_end);
  const bool rollout = request.kind == RequestKind::kRollout && end > begin;
  const std::size_t log_probs = rollout ? end - begin : 0;
  const std::size_t rows = rollout ? log_probs + (state.steps >= request.window_end ? 1 : 0) : 0;
  return !state.latents.empty() && state.log_probs.size() == log_probs &&
         state.trajectory.size() == rows * state.latents.size() && AllFinite(state.latents);
}

// What a request is, whatever its id and lease.
auto ContentOf(const Request& r) {
  return std::make_tuple(r.kind, r.iteration, r.prompt_index, r.seed, r.weight_version, r.window_begin, r.window_end,
                         r.real_steps);
}

}  // namespace

void WorkQueue::BeginIteration(std::uint32_t iteration) {
  queue_ = RequestQueue();
  batches_.clear();
  samples_.clear();
  if (store_ != nullptr) store_->Forget(iteration);
}

void WorkQueue::Add(std::vector<Request> requests, const Roster& roster) {
  for (const Request& request : requests) versions_[request.kind] = request.weight_version;
  std::map<decltype(ContentOf(Request{})), Sample> finished;
  if (store_ != nullptr && !requests.empty()) {
    for (Sample& sample : store_->Samples(requests[0].iteration)) {
      const auto content = ContentOf(sample.request);
      finished.emplace(content, std::move(sample));
    }
  }
  std::map<std::uint32_t, std::vector<Request>> left;  // by steps done
  for (Request& request : requests) {
    request.id = next_id_++;
    if (const auto found = finished.find(ContentOf(request)); found != finished.end() && !request.keep_image) {
      found->second.request = request;
      samples_[request.kind][request.id] = std::move(found->second);
      continue;
    }
    std::optional<DenoiseState> state;
    if (store_ != nullptr) state = store_->State(request);
    left[state ? state->steps : 0].push_back(request);
  }
  for (const auto& [steps, same] : left) queue_.Add(same, steps);
  // Once a phase: each change costs its explorers a regroup.
  if (config_.ranks.explorer_sp > 1 && config_.ranks.adapt_sp) ChooseDegree(roster);
}

std::vector<Sample> WorkQueue::Take(RequestKind kind) {
  std::vector<Sample> taken;
  for (auto& [id, sample] : samples_[kind]) taken.push_back(std::move(sample));
  samples_[kind].clear();
  return taken;
}

std::uint32_t WorkQueue::StepsOf(RequestKind kind) const {
  return static_cast<std::uint32_t>(kind == RequestKind::kEvaluate ? config_.eval.steps : config_.sampler.steps);
}

std::optional<Work> WorkQueue::Lease(const Pull& pull, const std::vector<int>& leaders,
                                     const std::function<bool(RequestKind, int)>& takes, double now) {
  const std::uint32_t rank = pull.rank, capacity = pull.capacity;
  const int worker = static_cast<int>(rank);
  const int degree = static_cast<int>(std::max<std::size_t>(1, pull.members.size()));
  if (const auto [known, first] = degrees_.try_emplace(rank, degree); std::exchange(known->second, degree) != degree) {
    speeds_.Forget(worker);  // it was that of another group
  }
  for (const RequestKind kind : {RequestKind::kEvaluate, RequestKind::kRollout, RequestKind::kExplore}) {
    if (queue_.Done(kind) || !takes(kind, worker)) continue;
    std::vector<int> takers = leaders;
    std::erase_if(takers, [&](int other) { return !takes(kind, other); });
    const std::size_t queued = queue_.Count(RequestState::kQueued, kind);
    const bool cut = kind == RequestKind::kExplore && !config_.explore.Awaited();
    const std::size_t size =
        std::min<std::size_t>(capacity, alone_ ? queued : speeds_.BatchSize(worker, kind, queued, takers, cut));
    const std::uint64_t version = versions_.at(kind);
    const std::pair weights(rank, kind == RequestKind::kEvaluate && config_.train.ema_decay > 0);
    const bool loads = !had_version_.contains(weights) || had_version_.at(weights) != version;
    const auto seconds = [&](std::size_t count) {
      return speeds_.LeaseSeconds(worker, kind, count, loads, kLeaseFloor, kFirstLease);
    };
    std::vector<Request> requests;
    if (size > 0) requests = queue_.Lease(worker, static_cast<int>(size), {kind}, now, seconds(size));
    if (requests.empty() && queued == 0) {
      const std::optional<double> usual = speeds_.SecondsPerRequest(worker, kind);
      const double older = std::max(kLeaseFloor, kStraggler * usual.value_or(kFirstLease) * capacity);
      requests = queue_.LeaseAgain(worker, static_cast<int>(capacity), {kind}, now, seconds(capacity), older);
    }
    if (requests.empty()) continue;
    had_version_[weights] = version;
    batches_[rank] = {.since = now,
                      .first = requests[0],
                      .heard = now,
                      .loaded = loads,
                      .requests = requests.size(),
                      .degree = degree,
                      .spot = pull.role == Role::kExplorer,
                      .kind = kind};
    Work work = WithStates(std::move(requests));
    work.degree = static_cast<std::uint32_t>(degree_);
    return work;
  }
  return std::nullopt;
}

Work WorkQueue::WithStates(std::vector<Request> requests) {
  Work work{std::move(requests), {}};
  if (store_ == nullptr || queue_.StepsDone(work.requests[0].id) == 0) return work;
  for (const Request& request : work.requests) {
    std::optional<DenoiseState> state = store_->State(request);
    if (!state || state->steps != queue_.StepsDone(request.id)) {
      // A commit that cannot be read any more: the batch is at one step, so all of it begins again.
      for (const Request& other : work.requests) queue_.Rewind(other.id, 0);
      return {std::move(work.requests), {}};
    }
    work.states.push_back(*std::move(state));
  }
  return work;
}

WorkQueue::Batch* WorkQueue::Hear(std::uint32_t rank, const Request& first, double now) {
  silent_.erase(rank);
  const auto found = batches_.find(rank);
  if (found == batches_.end()) return nullptr;
  Batch& batch = found->second;
  if (batch.first.id != first.id || batch.first.epoch != first.epoch) return nullptr;
  batch.silence = std::max(batch.silence, now - batch.heard);
  batch.heard = now;
  return &batch;
}

// The speed of the worker whose batch has come back whole: late or not, it is so slow.
void WorkQueue::Measure(const Push& push, double now) {
  const Batch* const batch = push.samples.empty() ? nullptr : Hear(push.rank, push.samples[0].request, now);
  if (batch == nullptr || batch->requests != push.samples.size()) return;
  const Batch& done = *batch;
  const double requests = static_cast<double>(done.requests), seconds = std::max(1e-6, now - done.since);
  speeds_.Observe(static_cast<int>(push.rank), done.kind, requests, seconds);
  speeds_.ObserveSilence(static_cast<int>(push.rank), done.kind, requests, done.loaded, std::max(1e-6, done.silence));
  if (done.spot && done.kind != RequestKind::kEvaluate) {
    double& known = degree_seconds_[done.degree];
    known = known == 0 ? seconds / requests : 0.7 * known + 0.3 * seconds / requests;
  }
  batches_.erase(push.rank);
}

double WorkQueue::Accept(Push push, double now) {
  Measure(push, now);
  double steps = 0;
  std::size_t refused = 0;
  for (Sample& sample : push.samples) {
    if (store_ != nullptr && !store_->Fits(sample)) {  // of a rank that has read other files
      ++refused;
      continue;
    }
    if (!queue_.Complete(sample.request.id, sample.request.epoch)) continue;
    if (!std::isfinite(sample.reward) || !AllFinite(sample.latents) || !AllFinite(sample.log_probs)) {
      LogWarning(fmt::format("rank {} made a sample that is not finite ({}); it is left out", sample.rank,
                             RequestName(sample.request)));
      sample.reward = std::numeric_limits<double>::quiet_NaN();  // no group or selection counts it
      samples_[sample.request.kind].insert_or_assign(sample.request.id, std::move(sample));
      continue;
    }
    steps += StepsOf(sample.request.kind);
    if (store_ != nullptr && !sample.request.keep_image) store_->CommitSample(sample);
    samples_[sample.request.kind].insert_or_assign(sample.request.id, std::move(sample));
  }
  if (refused > 0) {
    LogWarning(fmt::format("rank {} sent {} sample(s) whose sizes are not those of this run; they are refused",
                           push.rank, refused));
  }
  return steps;
}

void WorkQueue::Accept(CommitStates commit, double now) {
  if (commit.requests.empty() || commit.states.size() != commit.requests.size()) return;
  Hear(commit.rank, commit.requests[0], now);
  for (std::size_t i = 0; i < commit.requests.size(); ++i) {
    const Request& request = commit.requests[i];
    const std::uint32_t steps = commit.states[i].steps;
    if (!queue_.Renew(request.id, request.epoch, now) || store_ == nullptr || !Fits(request, commit.states[i]) ||
        !store_->Fits(commit.states[i])) {
      continue;
    }
    if (!store_->CommitState(request, std::move(commit.states[i]))) continue;  // the disk is behind
    queue_.Progress(request.id, request.epoch, steps, now);
  }
}

std::vector<std::uint32_t> WorkQueue::Working(RequestKind kind) const {
  std::vector<std::uint32_t> ranks;
  for (const auto& [rank, batch] : batches_) {
    if (batch.kind == kind) ranks.push_back(rank);
  }
  return ranks;
}

void WorkQueue::Release(std::uint32_t rank) {
  queue_.Release(static_cast<int>(rank));
  batches_.erase(rank);
  silent_.erase(rank);
}

std::size_t WorkQueue::Lose(std::uint32_t rank) {
  const std::size_t given_back = queue_.Release(static_cast<int>(rank)).size();
  batches_.erase(rank);
  degrees_.erase(rank);
  had_version_.erase({rank, false});
  had_version_.erase({rank, true});
  silent_.erase(rank);
  speeds_.Forget(static_cast<int>(rank));
  return given_back;
}

// Leases that ran out: their workers hang, or are much slower than they were.
void WorkQueue::Expire(double now) {
  if (now - last_expiry_ < kExpirySeconds) return;
  last_expiry_ = now;
  if (store_ != nullptr) {
    const std::vector<std::string> problems = store_->Problems();
    for (; problems_told_ < problems.size(); ++problems_told_) LogWarning(problems[problems_told_]);
  }
  for (const RequestQueue::Expired& expired : queue_.Expire(now)) {
    LogLine(fmt::format("rank {} has not reported on request {} for too long; it goes to another", expired.worker,
                        expired.id));
    speeds_.Forget(expired.worker);
    silent_.insert(static_cast<std::uint32_t>(expired.worker));
  }
}

// The degree with which explorers are done with the phase first, as far as degrees have been measured.
void WorkQueue::ChooseDegree(const Roster& roster) {
  PhaseWork work;
  work.batch = std::max(1, config_.sampler.batch);
  for (const RequestKind kind : {RequestKind::kRollout, RequestKind::kExplore}) {
    work.requests +=
        static_cast<int>(queue_.Count(RequestState::kQueued, kind) + queue_.Count(RequestState::kLeased, kind));
  }
  std::map<std::string, int> hosts;
  for (const auto& [number, rank] : roster.ranks()) {
    if (rank.role == Role::kExplorer && !rank.parked) ++hosts[rank.host];
  }
  for (const auto& [host, ranks] : hosts) work.ranks_of_host.push_back(ranks);
  // Only what was measured beside a rank alone can be compared with it.
  const auto alone = degree_seconds_.find(1);
  if (work.requests == 0 || hosts.empty() || alone == degree_seconds_.end() || degree_seconds_.size() < 2) return;
  for (const auto& [degree, seconds] : degree_seconds_) {
    if (degree <= config_.ranks.explorer_sp) work.efficiency[degree] = alone->second / (degree * seconds);
  }
  degree_ = BestDegree(work, heads_);
}

}  // namespace spotlight
