#include "comm/device_communicator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "comm/trainer_group.hpp"

namespace spotlight {
namespace {

constexpr std::chrono::minutes kConnecting{1};

// What `step` returns on each trainer. Empty: it has failed on one of them, and `reason` says why.
std::vector<std::string> OnAll(TrainerGroup& group, const std::function<std::string()>& step, std::string& reason) {
  std::string result;
  try {
    result = '+' + step();
  } catch (const UserError& error) {
    result = '-' + std::string(error.what());
  }
  std::vector<std::string> results = group.AllGather(result);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const bool fine = results[i].starts_with('+');
    results[i].erase(0, 1);
    if (fine) continue;
    reason = fmt::format("trainer {}: {}", i, results[i]);
    return {};
  }
  return results;
}

}  // namespace

DeviceConnection ConnectDevices(TrainerGroup& group, const DeviceConnector* connector) {
  DeviceConnection connection;
  const std::vector<std::string> gpus = OnAll(
      group,
      [&] {
        if (connector == nullptr) throw UserError("it has no GPU");
        return connector->Gpu() + " of " + group.host();
      },
      connection.reason);
  // NCCL hangs or fails with two ranks on one GPU.
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const auto first = std::find(gpus.begin(), gpus.end(), gpus[i]) - gpus.begin();
    if (static_cast<std::size_t>(first) == i) continue;
    connection.reason = fmt::format("trainers {} and {} share GPU {}", first, i, gpus[i]);
    return connection;
  }
  if (gpus.empty()) return connection;

  const std::vector<std::string> ids = OnAll(
      group, [&] { return group.index() == 0 ? connector->MakeId() : std::string(); }, connection.reason);
  if (ids.empty()) return connection;

  const DeviceWaits waits{.connect_limit = std::min<std::chrono::milliseconds>(group.limit() / 2, kConnecting),
                          .limit = group.limit(),
                          .look_at_peers = [&group] { group.LookAtPeers(); }};
  const auto connect = [&]() -> std::string {
    connection.communicator = connector->Connect(ids[0], group.index(), group.size(), waits);
    return "";
  };
  if (OnAll(group, connect, connection.reason).empty()) connection.communicator.reset();
  return connection;
}

}  // namespace spotlight
