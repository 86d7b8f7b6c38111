#include "schedule/request_queue.hpp"

#include <algorithm>
#include <iterator>
#include <string>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr std::array<RequestKind, kRequestKinds> kPriority = {RequestKind::kEvaluate, RequestKind::kRollout,
                                                              RequestKind::kExplore};

std::size_t Number(RequestKind kind) { return static_cast<std::size_t>(kind); }
std::size_t Number(RequestState state) { return static_cast<std::size_t>(state); }

bool Contains(const std::vector<RequestKind>& kinds, RequestKind kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

template <typename Holding>
bool Has(const std::vector<Holding>& holdings, std::uint32_t epoch) {
  return std::any_of(holdings.begin(), holdings.end(), [&](const Holding& held) { return held.epoch == epoch; });
}

}  // namespace

void RequestQueue::SetState(Entry& entry, RequestState state) {
  auto& counts = counts_[Number(entry.request.kind)];
  --counts[Number(entry.state)];
  ++counts[Number(state)];
  entry.state = state;
}

void RequestQueue::Add(const std::vector<Request>& requests, std::uint32_t steps) {
  for (const Request& request : requests) {
    const auto [entry, added] = entries_.try_emplace(request.id);
    SPOTLIGHT_REQUIRE(added, "request " + std::to_string(request.id) + " was added before");
    entry->second.request = request;
    entry->second.steps = steps;
    ++counts_[Number(request.kind)][Number(RequestState::kQueued)];
    queued_[Number(request.kind)][steps].push_back(request.id);
  }
}

void RequestQueue::Index(const Entry& entry) {
  const std::uint64_t id = entry.request.id;
  for (const Holding& holding : entry.holdings) by_deadline_.emplace(holding.Deadline(), id, holding.epoch);
  if (entry.holdings.size() == 1) alone_[Number(entry.request.kind)].emplace(entry.holdings[0].since, id);
}

void RequestQueue::Unindex(const Entry& entry) {
  const std::uint64_t id = entry.request.id;
  for (const Holding& holding : entry.holdings) by_deadline_.erase({holding.Deadline(), id, holding.epoch});
  if (entry.holdings.size() == 1) alone_[Number(entry.request.kind)].erase({entry.holdings[0].since, id});
}

Request RequestQueue::Give(Entry& entry, int worker, double now, double seconds) {
  EndOverdue(entry, worker);
  Unindex(entry);
  ++entry.request.epoch;
  entry.holdings.push_back({worker, entry.request.epoch, now, seconds});
  Index(entry);
  held_[worker].insert(entry.request.id);
  return entry.request;
}

void RequestQueue::End(Entry& entry, std::size_t holding) {
  const auto ended = entry.holdings.begin() + static_cast<std::ptrdiff_t>(holding);
  held_.at(ended->worker).erase(entry.request.id);
  Unindex(entry);
  entry.holdings.erase(ended);
  Index(entry);
}

void RequestQueue::EndAll(Entry& entry) {
  while (!entry.holdings.empty()) End(entry, entry.holdings.size() - 1);
  while (!entry.overdue.empty()) EndOverdue(entry, entry.overdue.back().worker);
}

void RequestQueue::EndOverdue(Entry& entry, int worker) {
  if (std::erase_if(entry.overdue, [&](const Holding& held) { return held.worker == worker; }) == 0) return;
  const auto found = overdue_.find(worker);
  found->second.erase(entry.request.id);
  if (found->second.empty()) overdue_.erase(found);
}

void RequestQueue::Requeue(Entry& entry) {
  SetState(entry, RequestState::kQueued);
  queued_[Number(entry.request.kind)][entry.steps].push_front(entry.request.id);
}

void RequestQueue::Unqueue(Entry& entry) {
  auto& by_steps = queued_[Number(entry.request.kind)];
  const auto queue = by_steps.find(entry.steps);
  std::erase(queue->second, entry.request.id);
  if (queue->second.empty()) by_steps.erase(queue);
}

std::vector<Request> RequestQueue::Lease(int worker, int capacity, const std::vector<RequestKind>& allowed, double now,
                                         double seconds) {
  std::vector<Request> leased;
  if (capacity <= 0) return leased;
  for (const RequestKind kind : kPriority) {
    auto& by_steps = queued_[Number(kind)];
    if (!Contains(allowed, kind) || by_steps.empty()) continue;
    std::deque<std::uint64_t>& queue = by_steps.begin()->second;
    while (!queue.empty() && std::ssize(leased) < capacity) {
      Entry& entry = entries_.at(queue.front());
      queue.pop_front();
      SetState(entry, RequestState::kLeased);
      leased.push_back(Give(entry, worker, now, seconds));
    }
    if (queue.empty()) by_steps.erase(by_steps.begin());
    break;
  }
  return leased;
}

std::vector<Request> RequestQueue::LeaseAgain(int worker, int capacity, const std::vector<RequestKind>& allowed,
                                              double now, double seconds, double older_than) {
  std::vector<Request> leased;
  for (const RequestKind kind : allowed) {
    if (!queued_[Number(kind)].empty()) return leased;
  }
  for (const RequestKind kind : kPriority) {
    if (!Contains(allowed, kind)) continue;
    std::vector<std::uint64_t> chosen;
    for (const auto& [since, id] : alone_[Number(kind)]) {
      if (std::ssize(chosen) >= capacity || now - since <= older_than) break;
      const Entry& entry = entries_.at(id);
      const bool same_steps = chosen.empty() || entry.steps == entries_.at(chosen.front()).steps;
      if (same_steps && entry.holdings[0].worker != worker) chosen.push_back(id);
    }
    for (const std::uint64_t id : chosen) leased.push_back(Give(entries_.at(id), worker, now, seconds));
    if (!leased.empty()) break;
  }
  return leased;
}

bool RequestQueue::Renew(std::uint64_t id, std::uint32_t epoch, double now) {
  if (!Counts(id, epoch)) return false;
  Entry& entry = entries_.at(id);
  const auto late = std::find_if(entry.overdue.begin(), entry.overdue.end(),
                                 [&](const Holding& held) { return held.epoch == epoch; });
  Unindex(entry);
  if (late != entry.overdue.end() && entry.holdings.size() < 2) {
    const Holding again = *late;
    EndOverdue(entry, again.worker);
    if (entry.state == RequestState::kQueued) {
      Unqueue(entry);
      SetState(entry, RequestState::kLeased);
    }
    const bool oldest = entry.holdings.empty() || epoch < entry.holdings[0].epoch;
    entry.holdings.insert(oldest ? entry.holdings.begin() : entry.holdings.end(), again);
    held_[again.worker].insert(id);
  }
  for (Holding& holding : entry.holdings) {
    if (holding.epoch == epoch) holding.since = now;
  }
  Index(entry);
  return true;
}

bool RequestQueue::Progress(std::uint64_t id, std::uint32_t epoch, std::uint32_t steps, double now) {
  if (!Counts(id, epoch)) return false;
  Entry& entry = entries_.at(id);
  if (steps <= entry.steps) return false;
  Renew(id, epoch, now);  // from now on it is leased, to this worker or to two others
  entry.steps = steps;
  return true;
}

void RequestQueue::Rewind(std::uint64_t id, std::uint32_t steps) {
  const auto found = entries_.find(id);
  SPOTLIGHT_REQUIRE(
      found != entries_.end() && found->second.state == RequestState::kLeased && steps <= found->second.steps,
      "request " + std::to_string(id) + " back to " + std::to_string(steps) + " steps");
  found->second.steps = steps;
}

bool RequestQueue::Complete(std::uint64_t id, std::uint32_t epoch) {
  if (!Counts(id, epoch)) return false;
  Entry& entry = entries_.at(id);
  EndAll(entry);
  if (entry.state == RequestState::kQueued) Unqueue(entry);
  SetState(entry, RequestState::kDone);
  return true;
}

bool RequestQueue::IsLive(std::uint64_t id, std::uint32_t epoch) const {
  const auto found = entries_.find(id);
  return found != entries_.end() && Has(found->second.holdings, epoch);
}

bool RequestQueue::Counts(std::uint64_t id, std::uint32_t epoch) const {
  const auto found = entries_.find(id);
  return found != entries_.end() && (Has(found->second.holdings, epoch) || Has(found->second.overdue, epoch));
}

std::vector<std::uint64_t> RequestQueue::Release(int worker) {
  if (const auto late = overdue_.find(worker); late != overdue_.end()) {
    const std::set<std::uint64_t> ids = late->second;
    for (const std::uint64_t id : ids) EndOverdue(entries_.at(id), worker);
  }
  std::vector<std::uint64_t> requeued;
  const auto found = held_.find(worker);
  if (found == held_.end()) return requeued;
  const std::set<std::uint64_t> held = found->second;
  // From the last one on, as each goes to the front.
  for (auto id = held.rbegin(); id != held.rend(); ++id) {
    Entry& entry = entries_.at(*id);
    End(entry, entry.holdings[0].worker == worker ? 0 : 1);
    if (!entry.holdings.empty()) continue;
    Requeue(entry);
    requeued.push_back(*id);
  }
  held_.erase(found);
  std::reverse(requeued.begin(), requeued.end());
  return requeued;
}

std::vector<RequestQueue::Expired> RequestQueue::Expire(double now) {
  std::vector<Expired> expired;
  while (!by_deadline_.empty() && std::get<0>(*by_deadline_.begin()) <= now) {
    const auto [deadline, id, epoch] = *by_deadline_.begin();
    Entry& entry = entries_.at(id);
    const std::size_t holding = entry.holdings[0].epoch == epoch ? 0 : 1;
    const Holding ended = entry.holdings[holding];
    expired.push_back({ended.worker, id});
    End(entry, holding);
    entry.overdue.push_back(ended);
    overdue_[ended.worker].insert(id);
  }
  for (const Expired& ended : expired) {
    Entry& entry = entries_.at(ended.id);
    if (entry.state != RequestState::kLeased || !entry.holdings.empty()) continue;
    SetState(entry, RequestState::kQueued);
    queued_[Number(entry.request.kind)][entry.steps].push_back(ended.id);
  }
  return expired;
}

int RequestQueue::Cancel(RequestKind kind) {
  int cancelled = 0;
  queued_[Number(kind)].clear();
  for (auto& [id, entry] : entries_) {
    if (entry.request.kind != kind) continue;
    if (entry.state != RequestState::kQueued && entry.state != RequestState::kLeased) continue;
    EndAll(entry);
    SetState(entry, RequestState::kCancelled);
    ++cancelled;
  }
  return cancelled;
}

std::size_t RequestQueue::Count(RequestState state, RequestKind kind) const {
  return counts_[Number(kind)][Number(state)];
}

bool RequestQueue::Done(RequestKind kind) const {
  return Count(RequestState::kQueued, kind) == 0 && Count(RequestState::kLeased, kind) == 0;
}

std::size_t RequestQueue::Leased(int worker) const {
  const auto found = held_.find(worker);
  return found == held_.end() ? 0 : found->second.size();
}

std::uint32_t RequestQueue::StepsDone(std::uint64_t id) const {
  const auto found = entries_.find(id);
  SPOTLIGHT_REQUIRE(found != entries_.end(), "request " + std::to_string(id) + " was never added");
  return found->second.steps;
}

}  // namespace spotlight
