#include "schedule/request_queue.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr std::array<RequestKind, kRequestKinds> kPriority = {RequestKind::kEvaluate, RequestKind::kRollout,
                                                              RequestKind::kExplore};

std::size_t Index(RequestKind kind) { return static_cast<std::size_t>(kind); }
std::size_t Index(RequestState state) { return static_cast<std::size_t>(state); }

}  // namespace

void RequestQueue::SetState(Entry& entry, RequestState state) {
  auto& counts = counts_[Index(entry.request.kind)];
  --counts[Index(entry.state)];
  ++counts[Index(state)];
  entry.state = state;
}

void RequestQueue::Add(const std::vector<Request>& requests) {
  for (const Request& request : requests) {
    const bool added = entries_.try_emplace(request.id, Entry{request}).second;
    SPOTLIGHT_REQUIRE(added, "request " + std::to_string(request.id) + " was added before");
    ++counts_[Index(request.kind)][Index(RequestState::kQueued)];
    queued_[Index(request.kind)].push_back(request.id);
  }
}

std::vector<Request> RequestQueue::Lease(int worker, int capacity, const std::vector<RequestKind>& allowed,
                                         double now) {
  std::vector<Request> leased;
  for (const RequestKind kind : kPriority) {
    if (std::find(allowed.begin(), allowed.end(), kind) == allowed.end()) continue;
    std::deque<std::uint64_t>& queue = queued_[Index(kind)];
    while (!queue.empty() && std::ssize(leased) < capacity) {
      Entry& entry = entries_.at(queue.front());
      queue.pop_front();
      SetState(entry, RequestState::kLeased);
      entry.worker = worker;
      leased_since_[entry.request.id] = now;
      leased.push_back(entry.request);
    }
    if (!leased.empty()) break;
  }
  return leased;
}

bool RequestQueue::Complete(std::uint64_t id, int worker) {
  const auto found = entries_.find(id);
  if (found == entries_.end()) return false;
  Entry& entry = found->second;
  if (entry.state != RequestState::kLeased || entry.worker != worker) return false;
  SetState(entry, RequestState::kDone);
  leased_since_.erase(id);
  return true;
}

int RequestQueue::Cancel(RequestKind kind) {
  int cancelled = 0;
  const auto cancel = [&](std::uint64_t id) {
    SetState(entries_.at(id), RequestState::kCancelled);
    ++cancelled;
  };
  for (const std::uint64_t id : queued_[Index(kind)]) cancel(id);
  queued_[Index(kind)].clear();
  std::erase_if(leased_since_, [&](const auto& lease) {
    if (entries_.at(lease.first).request.kind != kind) return false;
    cancel(lease.first);
    return true;
  });
  return cancelled;
}

std::size_t RequestQueue::Count(RequestState state, RequestKind kind) const {
  return counts_[Index(kind)][Index(state)];
}

bool RequestQueue::Done(RequestKind kind) const {
  return Count(RequestState::kQueued, kind) == 0 && Count(RequestState::kLeased, kind) == 0;
}

std::optional<RequestQueue::Outstanding> RequestQueue::OldestLease() const {
  const auto oldest = std::min_element(leased_since_.begin(), leased_since_.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (oldest == leased_since_.end()) return std::nullopt;
  return Outstanding{entries_.at(oldest->first).worker, oldest->second};
}

}  // namespace spotlight
