// Messages between the GPUs of the trainers without their hosts: what carries the trainers' collectives over memory
// that no host can read. NCCL implements it, in the plug-in (comm/nccl_communicator.cpp); the program links no NCCL.
//
// All ranks make the same calls in the same order. A call that moves data only starts it: after what was launched on
// `queue` before (LaunchQueue of kernels/memory.hpp). What is launched on `queue` after Follow comes after it. Follow
// comes before the next start, and Wait before anything that waits for the queue or frees the memory: a queue behind a
// dead peer never ends by itself.
//
// Start and Wait throw PeerLost if a peer is lost or silent for the limit. Then all that was started has been ended,
// its results are of no use, and neither is the communicator; a new one may be made.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "comm/peer_bytes.hpp"

namespace spotlight {

class TrainerGroup;

class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;  // if by an exception, the others' waits end as after a loss

  virtual std::string name() const = 0;  // with its version
  virtual int size() const = 0;
  virtual int index() const = 0;

  // One entry per rank; entry [own index] is not looked at.
  virtual void StartExchange(std::span<const PeerBytes> peers, void* queue) = 0;
  // size() pieces of `piece_bytes` lie one after the other: each rank's own one to all.
  virtual void StartGather(void* memory, std::size_t piece_bytes, void* queue) = 0;
  // What trainer `root` has, to all.
  virtual void StartBroadcast(void* memory, std::size_t bytes, int root, void* queue) = 0;
  virtual void Follow(void* queue) = 0;
  virtual void Wait() = 0;
};

// How a communicator waits: no longer than this for its peers, when it is made and later, with a look at them now and
// then that throws PeerLost if one is gone. (Over NVLink nothing else tells it.)
struct DeviceWaits {
  std::chrono::milliseconds connect_limit, limit;
  std::function<void()> look_at_peers;
};

// What a plug-in has for making communicators. Each throws UserError with the reason if it cannot.
struct DeviceConnector {
  std::string (*Gpu)();     // the one of this process, by a name that is the same for all processes of the node
  std::string (*MakeId)();  // of a new communicator, on one rank
  // Collective over those with the same id.
  std::unique_ptr<DeviceCommunicator> (*Connect)(const std::string& id, int index, int size, DeviceWaits waits);
};
// The function that the plug-in exports, under the name kNcclEntry.
using NcclEntry = const DeviceConnector& (*)();
inline constexpr const char* kNcclEntry = "SpotlightNccl";

struct DeviceConnection {
  std::unique_ptr<DeviceCommunicator> communicator;  // null: there is none, on no trainer
  std::string reason;                                // why there is none, the same on all
};

// Collective over `group`: connects the trainers' GPUs, or finds out why that cannot be. connector: null where this
// trainer's back end has none. Within half of the group's limit, and a minute. Throws PeerLost.
DeviceConnection ConnectDevices(TrainerGroup& group, const DeviceConnector* connector);

}  // namespace spotlight
