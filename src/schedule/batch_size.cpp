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

double Averaged(double known, double newest) { return (1 - kNewest) * known + kNewest * newest; }

void RequirePositive(double requests, double seconds) {
  SPOTLIGHT_REQUIRE(requests > 0 && seconds > 0 && std::isfinite(requests) && std::isfinite(seconds),
                    std::to_string(requests) + " requests in " + std::to_string(seconds) + " s");
}

}  // namespace

void WorkerSpeeds::Observe(int worker, RequestKind kind, double requests, double seconds) {
  RequirePositive(requests, seconds);
  double& known = speeds_[worker].seconds[Number(kind)];
  known = known > 0 ? Averaged(known, seconds / requests) : seconds / requests;
}

void WorkerSpeeds::ObserveSilence(int worker, RequestKind kind, double requests, bool loaded, double seconds) {
  RequirePositive(requests, seconds);
  Speed& speed = speeds_[worker];
  double& silence = speed.silence[Number(kind)];
  // What was longer than ever may be so again at once; only what stays short shortens leases.
  const auto follow = [](double& known, double newest) { known = std::max(newest, Averaged(known, newest)); };
  if (loaded && silence > 0) {
    follow(speed.loading, std::max(0.0, seconds - silence * requests));
  } else {
    follow(silence, seconds / requests);
  }
}

std::optional<double> WorkerSpeeds::SecondsPerRequest(int worker, RequestKind kind) const {
  const auto found = speeds_.find(worker);
  if (found == speeds_.end() || found->second.seconds[Number(kind)] == 0) return std::nullopt;
  return found->second.seconds[Number(kind)];
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

double WorkerSpeeds::LeaseSeconds(int worker, RequestKind kind, std::size_t requests, bool loads, double floor,
                                  double unmeasured) const {
  const auto found = speeds_.find(worker);
  if (found == speeds_.end() || found->second.silence[Number(kind)] == 0) return std::max(unmeasured, floor);
  const Speed& speed = found->second;
  const double silence = speed.silence[Number(kind)] * static_cast<double>(requests) + (loads ? speed.loading : 0);
  return std::max(kExpectedTimes * silence, floor);
}

}  // namespace spotlight
