#include "schedule/batch_size.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr double kNewest = 0.3;  // weight of the newest measurement
constexpr double kParts = 2;     // of a fair share; a batch is one of them
constexpr double kPartsIfCut = 4;
constexpr double kExpectedTimes = 3;  // a lease is so many times as long as what is expected

std::size_t Number(RequestKind kind) { return static_cast<std::size_t>(kind); }

}  // namespace

void WorkerSpeeds::Observe(int worker, RequestKind kind, double requests, double seconds) {
  SPOTLIGHT_REQUIRE(requests > 0 && seconds > 0 && std::isfinite(requests) && std::isfinite(seconds),
                    std::to_string(requests) + " requests in " + std::to_string(seconds) + " s");
  double& known = seconds_[worker][Number(kind)];
  known = known > 0 ? (1 - kNewest) * known + kNewest * seconds / requests : seconds / requests;
}

std::optional<double> WorkerSpeeds::SecondsPerRequest(int worker, RequestKind kind) const {
  const auto found = seconds_.find(worker);
  if (found == seconds_.end() || found->second[Number(kind)] == 0) return std::nullopt;
  return found->second[Number(kind)];
}

std::size_t WorkerSpeeds::BatchSize(int worker, RequestKind kind, std::size_t queued, const std::vector<int>& sharers,
                                    bool cut) const {
  if (sharers.size() <= 1 && !cut) return queued;
  double sum = 0, fastest = 0;  // requests a second
  int measured = 0;
  for (const int sharer : sharers) {
    const std::optional<double> seconds = SecondsPerRequest(sharer, kind);
    if (!seconds) continue;
    sum += 1 / *seconds;
    fastest = std::max(fastest, 1 / *seconds);
    ++measured;
  }
  const double average = measured > 0 ? sum / measured : 1;
  const std::optional<double> own_seconds = SecondsPerRequest(worker, kind);
  const double own = own_seconds ? 1 / *own_seconds : average;
  if (measured == 0) fastest = average;

  const double left = static_cast<double>(queued), smallest = static_cast<double>(smallest_);
  // Until the others have done all that is queued, and one of them the batch that it has now.
  const double others = sum - (own_seconds ? own : 0);
  if (own_seconds && others > 0 && *own_seconds > left / others + smallest / fastest) return 0;

  const double all = sum + (static_cast<double>(sharers.size()) - measured) * average;
  const double part = left * own / all / (cut ? kPartsIfCut : kParts);
  const double least = std::max(1.0, std::round(smallest * std::min(1.0, own / fastest)));
  return std::min(queued, static_cast<std::size_t>(std::max(least, std::ceil(part))));
}

double WorkerSpeeds::LeaseSeconds(int worker, RequestKind kind, std::size_t requests, int commits, double floor,
                                  double unmeasured) const {
  SPOTLIGHT_REQUIRE(commits >= 1, std::to_string(commits) + " commits");
  const std::optional<double> seconds = SecondsPerRequest(worker, kind);
  if (!seconds) return std::max(unmeasured, floor);
  return std::max(kExpectedTimes * *seconds * static_cast<double>(requests) / commits, floor);
}

}  // namespace spotlight
