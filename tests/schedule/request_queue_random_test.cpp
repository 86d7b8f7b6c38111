// Random orders of events against a model of the queue that is as simple as can be: lists that are searched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/request_queue.hpp"

namespace spotlight {
namespace {

constexpr std::array<RequestKind, 3> kByPriority = {RequestKind::kEvaluate, RequestKind::kRollout,
                                                    RequestKind::kExplore};
constexpr std::array<RequestState, 4> kStates = {RequestState::kQueued, RequestState::kLeased, RequestState::kDone,
                                                 RequestState::kCancelled};
constexpr int kWorkers = 4;
constexpr std::uint32_t kSteps = 6;

struct ModelLease {
  int worker;
  std::uint32_t epoch;
  double since, seconds;
};

struct ModelRequest {
  RequestKind kind = RequestKind::kRollout;
  RequestState state = RequestState::kQueued;
  std::uint32_t steps = 0;
  std::vector<ModelLease> leases;
  std::vector<ModelLease> overdue;
  int times_done = 0;
};

class RandomRun {
 public:
  explicit RandomRun(unsigned seed) : random_(seed) {}

  void Event() {
    now_ += Pick(3) == 0 ? Pick(20) : 0;
    switch (Pick(21)) {
      case 0:
      case 1:
        Add();
        break;
      case 2:
      case 3:
      case 4:
      case 5:
        Lease();
        break;
      case 6:
      case 7:
        LeaseAgain();
        break;
      case 8:
      case 9:
      case 10:
      case 11:
      case 12:
        Progress();
        break;
      case 13:
      case 14:
      case 15:
        Complete();
        break;
      case 16:
      case 17:
        Release(static_cast<int>(Pick(kWorkers)));
        break;
      case 18:
        Expire();
        break;
      case 19:
        Renew();
        break;
      default:
        if (Pick(10) == 0) Cancel();
    }
  }

  // What the queue tells about itself is what the model has.
  void Check() const {
    std::map<std::pair<RequestState, RequestKind>, std::size_t> counts;
    std::vector<std::size_t> leased(kWorkers, 0);
    for (const auto& [id, request] : model_) {
      ++counts[{request.state, request.kind}];
      ASSERT_EQ(queue_.StepsDone(id), request.steps);
      ASSERT_EQ(request.leases.empty(), request.state != RequestState::kLeased) << id;
      ASSERT_LE(request.leases.size(), 2U);
      for (const ModelLease& lease : request.leases) {
        ASSERT_TRUE(queue_.IsLive(id, lease.epoch) && queue_.Counts(id, lease.epoch));
        ++leased[static_cast<std::size_t>(lease.worker)];
      }
      for (const ModelLease& lease : request.overdue) {
        ASSERT_TRUE(!queue_.IsLive(id, lease.epoch) && queue_.Counts(id, lease.epoch));
      }
    }
    for (const RequestKind kind : kByPriority) {
      for (const RequestState state : kStates) {
        const auto count = counts.find({state, kind});
        ASSERT_EQ(queue_.Count(state, kind), count == counts.end() ? 0 : count->second);
      }
    }
    for (int worker = 0; worker < kWorkers; ++worker) {
      ASSERT_EQ(queue_.Leased(worker), leased[static_cast<std::size_t>(worker)]);
    }
  }

  // One worker is left: it ends all, whatever came before.
  void Finish() {
    for (int worker = 1; worker < kWorkers; ++worker) Release(worker);
    now_ += 1000;
    Expire();
    const std::vector<RequestKind> all(kByPriority.begin(), kByPriority.end());
    for (;;) {
      const std::vector<Request> batch = queue_.Lease(0, 3, all, now_, 10);
      if (batch.empty()) break;
      for (const Request& request : batch) {
        ASSERT_TRUE(queue_.Complete(request.id, request.epoch));
        ++model_.at(request.id).times_done;
        model_.at(request.id).state = RequestState::kDone;
      }
    }
    for (const auto& [id, request] : model_) {
      ASSERT_EQ(request.times_done, request.state == RequestState::kCancelled ? 0 : 1) << "request " << id;
    }
    for (const RequestKind kind : kByPriority) ASSERT_TRUE(queue_.Done(kind));
  }

 private:
  unsigned Pick(unsigned bound) { return static_cast<unsigned>(random_() % bound); }

  std::vector<RequestKind> SomeKinds() {
    std::vector<RequestKind> kinds;
    for (const RequestKind kind : kByPriority) {
      if (Pick(3) > 0) kinds.push_back(kind);
    }
    std::shuffle(kinds.begin(), kinds.end(), random_);
    return kinds;
  }

  static bool Contains(const std::vector<RequestKind>& kinds, RequestKind kind) {
    return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
  }

  void Add() {
    Request request;
    request.id = 100 + model_.size();
    request.kind = kByPriority[Pick(3)];
    const std::uint32_t steps = Pick(5) == 0 ? Pick(kSteps) : 0;
    queue_.Add({request}, steps);
    model_[request.id] = {request.kind, RequestState::kQueued, steps, {}, {}, 0};
    order_[request.kind].push_back(request.id);
  }

  // The leased requests must be `expected`, in this order.
  void Given(const std::vector<Request>& given, const std::vector<std::uint64_t>& expected, int worker,
             double seconds) {
    std::vector<std::uint64_t> ids;
    for (const Request& request : given) {
      ids.push_back(request.id);
      ModelRequest& model = model_.at(request.id);
      model.state = RequestState::kLeased;
      for (const std::uint32_t old : epochs_[request.id]) ASSERT_LT(old, request.epoch) << "not a fresh epoch";
      epochs_[request.id].push_back(request.epoch);
      model.leases.push_back({worker, request.epoch, now_, seconds});
      EndOverdue(model, worker);
    }
    ASSERT_EQ(ids, expected);
  }

  void Lease() {
    const int worker = static_cast<int>(Pick(kWorkers)), capacity = static_cast<int>(Pick(4));
    const std::vector<RequestKind> kinds = SomeKinds();
    std::vector<std::uint64_t> expected;
    for (const RequestKind kind : kByPriority) {
      std::deque<std::uint64_t>& order = order_[kind];
      if (!Contains(kinds, kind) || order.empty() || capacity == 0) continue;
      const auto steps = [&](std::uint64_t id) { return model_.at(id).steps; };
      const std::uint64_t furthest = *std::max_element(
          order.begin(), order.end(), [&](std::uint64_t a, std::uint64_t b) { return steps(a) < steps(b); });
      const std::uint32_t most = steps(furthest);
      for (const std::uint64_t id : order) {
        if (steps(id) == most && std::ssize(expected) < capacity) expected.push_back(id);
      }
      for (const std::uint64_t id : expected) order.erase(std::find(order.begin(), order.end(), id));
      break;
    }
    const double seconds = 1 + Pick(30);
    Given(queue_.Lease(worker, capacity, kinds, now_, seconds), expected, worker, seconds);
  }

  void LeaseAgain() {
    const int worker = static_cast<int>(Pick(kWorkers)), capacity = static_cast<int>(Pick(4));
    const std::vector<RequestKind> kinds = SomeKinds();
    const double older_than = Pick(10), seconds = 1 + Pick(30);
    std::vector<std::uint64_t> expected;
    const bool queued =
        std::any_of(kinds.begin(), kinds.end(), [&](RequestKind kind) { return !order_[kind].empty(); });
    for (const RequestKind kind : kByPriority) {
      if (queued || !expected.empty() || !Contains(kinds, kind)) continue;
      std::vector<std::pair<double, std::uint64_t>> slow;
      for (const auto& [id, request] : model_) {
        if (request.kind != kind || request.leases.size() != 1 || request.leases[0].worker == worker) continue;
        if (now_ - request.leases[0].since > older_than) slow.emplace_back(request.leases[0].since, id);
      }
      std::sort(slow.begin(), slow.end());
      for (const auto& [since, id] : slow) {
        const bool fits = expected.empty() || model_.at(id).steps == model_.at(expected[0]).steps;
        if (fits && std::ssize(expected) < capacity) expected.push_back(id);
      }
    }
    Given(queue_.LeaseAgain(worker, capacity, kinds, now_, seconds, older_than), expected, worker, seconds);
  }

  // Any request and any epoch that it ever had, or one that it never had.
  std::pair<std::uint64_t, std::uint32_t> SomeLease() {
    const std::uint64_t id = 100 + Pick(static_cast<unsigned>(model_.size()) + 1);
    const std::vector<std::uint32_t>& epochs = epochs_[id];
    if (epochs.empty() || Pick(10) == 0) return {id, Pick(50)};
    return {id, epochs[epochs.size() - 1 - Pick(static_cast<unsigned>(std::min<std::size_t>(2, epochs.size())))]};
  }

  ModelLease* Live(std::uint64_t id, std::uint32_t epoch) {
    const auto request = model_.find(id);
    if (request == model_.end()) return nullptr;
    for (ModelLease& lease : request->second.leases) {
      if (lease.epoch == epoch) return &lease;
    }
    return nullptr;
  }

  bool Counts(std::uint64_t id, std::uint32_t epoch) {
    const auto request = model_.find(id);
    if (request == model_.end()) return false;
    const std::vector<ModelLease>& overdue = request->second.overdue;
    return Live(id, epoch) != nullptr ||
           std::any_of(overdue.begin(), overdue.end(), [&](const ModelLease& lease) { return lease.epoch == epoch; });
  }

  static void EndOverdue(ModelRequest& request, int worker) {
    std::erase_if(request.overdue, [&](const ModelLease& lease) { return lease.worker == worker; });
  }

  void Unqueue(std::uint64_t id) { std::erase(order_[model_.at(id).kind], id); }

  // Of a lease that counts.
  void Renewed(std::uint64_t id, std::uint32_t epoch) {
    ModelRequest& request = model_.at(id);
    if (Live(id, epoch) == nullptr && request.leases.size() < 2) {
      const auto lease = std::find_if(request.overdue.begin(), request.overdue.end(),
                                      [&](const ModelLease& l) { return l.epoch == epoch; });
      request.leases.push_back(*lease);
      request.overdue.erase(lease);
      if (request.state == RequestState::kQueued) Unqueue(id);
      request.state = RequestState::kLeased;
    }
    if (ModelLease* const lease = Live(id, epoch)) lease->since = now_;
  }

  void Renew() {
    const auto [id, epoch] = SomeLease();
    ASSERT_EQ(queue_.Renew(id, epoch, now_), Counts(id, epoch));
    if (Counts(id, epoch)) Renewed(id, epoch);
  }

  void Progress() {
    const auto [id, epoch] = SomeLease();
    const std::uint32_t steps = Pick(kSteps + 1);
    const bool accepted = Counts(id, epoch) && steps > model_.at(id).steps;
    ASSERT_EQ(queue_.Progress(id, epoch, steps, now_), accepted);
    if (!accepted) return;
    Renewed(id, epoch);
    model_.at(id).steps = steps;
    if (Pick(20) > 0) return;
    model_.at(id).steps = Pick(steps + 1);  // the commit was lost
    queue_.Rewind(id, model_.at(id).steps);
  }

  void Complete() {
    const auto [id, epoch] = SomeLease();
    const bool accepted = Counts(id, epoch);
    for (int answer = 0; answer < 2; ++answer) {  // the second one is a duplicate
      ASSERT_EQ(queue_.Complete(id, epoch), accepted && answer == 0);
    }
    if (!accepted) return;
    ModelRequest& request = model_.at(id);
    if (request.state == RequestState::kQueued) Unqueue(id);
    request.state = RequestState::kDone;
    request.leases.clear();
    request.overdue.clear();
    ++request.times_done;
  }

  void Requeue(std::uint64_t id) {
    model_.at(id).state = RequestState::kQueued;
    order_[model_.at(id).kind].push_front(id);
  }

  void Release(int worker) {
    std::vector<std::uint64_t> back;
    for (auto& [id, request] : model_) {
      EndOverdue(request, worker);
      const std::size_t ended = std::erase_if(request.leases, [&](const ModelLease& l) { return l.worker == worker; });
      if (ended > 0 && request.leases.empty()) back.push_back(id);
    }
    ASSERT_EQ(queue_.Release(worker), back);
    std::for_each(back.rbegin(), back.rend(), [&](std::uint64_t id) { Requeue(id); });
  }

  void Expire() {
    std::vector<std::tuple<double, std::uint64_t, std::uint32_t, int>> due;
    for (auto& [id, request] : model_) {
      for (const ModelLease& lease : request.leases) {
        if (lease.since + lease.seconds <= now_)
          due.emplace_back(lease.since + lease.seconds, id, lease.epoch, lease.worker);
      }
    }
    std::sort(due.begin(), due.end());
    std::vector<RequestQueue::Expired> expected;
    for (const auto& [deadline, id, epoch, worker] : due) {
      expected.push_back({worker, id});
      model_.at(id).overdue.push_back(*Live(id, epoch));
      std::erase_if(model_.at(id).leases, [epoch = epoch](const ModelLease& l) { return l.epoch == epoch; });
    }
    ASSERT_EQ(queue_.Expire(now_), expected);
    for (const auto& [deadline, id, epoch, worker] : due) {
      ModelRequest& request = model_.at(id);
      if (!request.leases.empty() || request.state != RequestState::kLeased) continue;
      request.state = RequestState::kQueued;
      order_[request.kind].push_back(id);
    }
  }

  void Cancel() {
    const RequestKind kind = kByPriority[Pick(3)];
    int cancelled = 0;
    for (auto& [id, request] : model_) {
      if (request.kind != kind || request.state == RequestState::kDone) continue;
      cancelled += request.state != RequestState::kCancelled ? 1 : 0;
      request.state = RequestState::kCancelled;
      request.leases.clear();
      request.overdue.clear();
    }
    order_[kind].clear();
    ASSERT_EQ(queue_.Cancel(kind), cancelled);
  }

  std::mt19937 random_;
  double now_ = 0;
  RequestQueue queue_;
  std::map<std::uint64_t, ModelRequest> model_;
  std::map<RequestKind, std::deque<std::uint64_t>> order_;  // queued, first to last
  std::map<std::uint64_t, std::vector<std::uint32_t>> epochs_;
};

TEST(RequestQueue, RandomEventsKeepEveryRequestInOneStateAndEndWithEachDoneOnce) {
  for (unsigned seed = 0; seed < 8000; ++seed) {
    RandomRun run(seed);
    for (int event = 0; event < 200; ++event) {
      ASSERT_NO_FATAL_FAILURE(run.Event()) << "seed " << seed << " event " << event;
      if (event % 10 != 0) continue;
      ASSERT_NO_FATAL_FAILURE(run.Check()) << "seed " << seed << " event " << event;
    }
    ASSERT_NO_FATAL_FAILURE(run.Finish()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace spotlight
