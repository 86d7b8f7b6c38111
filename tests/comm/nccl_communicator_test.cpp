// How NcclCommunicator calls NCCL and waits for it, on a machine without a GPU: in place of NCCL and the CUDA runtime
// stand functions that do nothing but keep their state, write down who was called, and object to calls that NCCL does
// not allow in that state (NCCL 2.28, src/init.cc and src/group.cc). What moves data needs GPUs: Ranks.nccl.
#include "comm/nccl_communicator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "comm/peer_lost.hpp"

namespace spotlight {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

struct Script {
  int polls = 3;  // of its state until what was started is done
  bool hangs = false, never_runs = false;
  ncclResult_t result = ncclSuccess;  // of the next call that starts something
  ncclResult_t ends_with = ncclSuccess;
  bool makes_none = false;
};
Script script;
struct State {
  ncclResult_t state = ncclSuccess;
  int polls_left = 0, alive = 0;  // communicators
  bool in_group = false, work = false, finalized = false, on_gpu = false, recorded = false;
  std::vector<std::string> calls;
};
State seen;

void Begin() {
  seen.state = ncclInProgress;
  seen.polls_left = script.polls;
}
void Ready(const char* call) {
  EXPECT_EQ(seen.alive, 1) << call << " without a communicator";
  EXPECT_EQ(seen.state, ncclSuccess) << call << " before the last call was done";
}
ncclComm_t const kComm = reinterpret_cast<ncclComm_t>(&seen);

NcclLibrary Double() {
  NcclLibrary nccl;
  nccl.version = "0.0.0";
  nccl.GetErrorString = [](ncclResult_t result) -> const char* {
    return result == ncclRemoteError ? "remote" : "other";
  };
  nccl.GetLastError = [](ncclComm_t) -> const char* { return "details"; };
  nccl.CommInitRankConfig = [](ncclComm_t* comm, int, ncclUniqueId, int, ncclConfig_t* config) {
    EXPECT_EQ(config->blocking, 0);
    seen.calls.push_back("init");
    if (script.makes_none) return script.result;
    *comm = kComm;
    ++seen.alive;
    Begin();
    return script.result == ncclSuccess ? ncclInProgress : script.result;
  };
  nccl.CommGetAsyncError = [](ncclComm_t comm, ncclResult_t* state) {
    EXPECT_EQ(seen.alive, 1);
    EXPECT_EQ(comm, kComm);
    if (seen.state == ncclInProgress && !script.hangs && --seen.polls_left <= 0) {
      seen.state = script.ends_with;
      seen.on_gpu = seen.work;
      seen.work = false;
    }
    *state = seen.state;
    return ncclSuccess;
  };
  nccl.CommFinalize = [](ncclComm_t) {
    Ready("finalize");
    seen.calls.push_back("finalize");
    seen.finalized = true;
    Begin();
    return ncclInProgress;
  };
  nccl.CommDestroy = [](ncclComm_t) {
    Ready("destroy");
    EXPECT_TRUE(seen.finalized);
    seen.calls.push_back("destroy");
    --seen.alive;
    return ncclSuccess;
  };
  nccl.CommAbort = [](ncclComm_t) {
    EXPECT_EQ(seen.alive, 1);
    EXPECT_FALSE(seen.in_group);
    seen.calls.push_back("abort");
    --seen.alive;
    seen.on_gpu = false;
    return ncclInProgress;
  };
  nccl.GroupStart = [] {
    EXPECT_FALSE(seen.in_group);
    seen.in_group = true;
    return ncclSuccess;
  };
  nccl.GroupEnd = [] {
    EXPECT_TRUE(seen.in_group);
    seen.in_group = false;
    seen.calls.push_back("end");
    if (!seen.work) return ncclSuccess;
    Begin();
    return ncclInProgress;
  };
  const auto enqueue = [](const std::string& call) {
    Ready(call.c_str());
    EXPECT_TRUE(seen.in_group);
    seen.calls.push_back(call);
    seen.work = true;
    return script.result;
  };
  static const auto operation = enqueue;
  nccl.Send = [](const void*, std::size_t count, ncclDataType_t type, int peer, ncclComm_t, cudaStream_t) {
    EXPECT_EQ(type, ncclInt8);
    return operation("send " + std::to_string(count) + " to " + std::to_string(peer));
  };
  nccl.Recv = [](void*, std::size_t count, ncclDataType_t type, int peer, ncclComm_t, cudaStream_t) {
    EXPECT_EQ(type, ncclInt8);
    return operation("receive " + std::to_string(count) + " of " + std::to_string(peer));
  };
  nccl.AllGather = [](const void* send, void* receive, std::size_t count, ncclDataType_t, ncclComm_t, cudaStream_t) {
    return operation("gather " + std::to_string(count) + " from " +
                     std::to_string(static_cast<const char*>(send) - static_cast<const char*>(receive)));
  };
  nccl.Broadcast = [](const void*, void*, std::size_t count, ncclDataType_t, int root, ncclComm_t, cudaStream_t) {
    return operation("broadcast " + std::to_string(count) + " of " + std::to_string(root));
  };
  return nccl;
}

}  // namespace
}  // namespace spotlight

// Of the CUDA runtime, what NcclCommunicator calls. A stream runs what was enqueued before an event at the third query.
extern "C" {
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  static int memory = 0;
  *stream = reinterpret_cast<cudaStream_t>(&memory);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
cudaError_t cudaStreamQuery(cudaStream_t) { return spotlight::seen.on_gpu ? cudaErrorNotReady : cudaSuccess; }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  EXPECT_EQ(flags, static_cast<unsigned>(cudaEventDisableTiming));
  static int memory = 0;
  *event = reinterpret_cast<cudaEvent_t>(&memory);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  using spotlight::seen;
  EXPECT_NE(seen.state, ncclInProgress) << "recorded before NCCL has launched what it is to stand for";
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  static int queries = 0;
  if (!spotlight::script.never_runs && ++queries % 3 == 0) spotlight::seen.on_gpu = false;
  return spotlight::seen.on_gpu ? cudaErrorNotReady : cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t) { return "an error"; }
cudaError_t cudaGetDevice(int*) { return cudaErrorNoDevice; }
cudaError_t cudaDeviceGetPCIBusId(char*, int, int) { return cudaErrorNoDevice; }
}

namespace spotlight {
namespace {

class NcclCommunicatorTest : public testing::Test {
 protected:
  NcclCommunicatorTest() {
    script = {};
    seen = {};
  }
  ~NcclCommunicatorTest() override { EXPECT_EQ(seen.alive, 0) << "a communicator is left"; }

  std::unique_ptr<NcclCommunicator> Make(int index = 1, int size = 3) {
    return std::make_unique<NcclCommunicator>(nccl_, std::string(sizeof(ncclUniqueId), 'x'), index, size,
                                              DeviceWaits{kLimit, kLimit, [this] {
                                                            ++looks_;
                                                            if (peer_lost_) throw PeerLost("gone");
                                                          }});
  }
  // An exchange with both others, and the wait for it.
  static void ExchangeOnce(DeviceCommunicator& device) {
    device.StartExchange(std::vector<PeerBytes>(3, PeerBytes{nullptr, 8, nullptr, 16}), nullptr);
    device.Follow(nullptr);
    device.Wait();
  }

  static constexpr milliseconds kLimit{200};
  NcclLibrary nccl_ = Double();
  bool peer_lost_ = false;
  int looks_ = 0;
};

TEST_F(NcclCommunicatorTest, IsMadeUsedAndEndedInOrder) {
  {
    const auto device = Make();
    EXPECT_EQ(device->name(), "NCCL 0.0.0");
    const PeerBytes none;
    // The own entry is not looked at; nothing is sent where there is nothing.
    device->StartExchange(std::vector<PeerBytes>{{nullptr, 8, nullptr, 16}, {nullptr, 4, nullptr, 4}, none}, nullptr);
    device->Follow(nullptr);
    device->StartExchange(std::vector<PeerBytes>(3), nullptr);
    device->Follow(nullptr);
    ExchangeOnce(*device);
    device->StartGather(nullptr, 100, nullptr);
    device->Follow(nullptr);
    device->StartBroadcast(nullptr, 7, 2, nullptr);
    device->Follow(nullptr);
    device->Wait();
  }
  EXPECT_THAT(seen.calls, ElementsAre("init", "receive 16 of 0", "send 8 to 0", "end", "end", "send 8 to 2",
                                      "receive 16 of 0", "send 8 to 0", "receive 16 of 2", "end", "gather 100 from 100",
                                      "end", "broadcast 7 of 2", "end", "finalize", "destroy"));
}

TEST_F(NcclCommunicatorTest, AStartThatHangsIsAbortedInTime) {
  script.hangs = true;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(Make(), UserError);
  EXPECT_GE(std::chrono::steady_clock::now() - start, kLimit);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20 * kLimit);
  EXPECT_THAT(seen.calls, ElementsAre("init", "abort"));
  EXPECT_GT(looks_, 0);
}

TEST_F(NcclCommunicatorTest, AStartThatFailsIsForTheUser) {
  script.ends_with = ncclSystemError;
  EXPECT_THROW(Make(), UserError);
  EXPECT_THAT(seen.calls, ElementsAre("init", "abort"));
  seen = {};
  script = {.result = ncclUnhandledCudaError, .makes_none = true};
  EXPECT_THROW(Make(), UserError);
  EXPECT_THAT(seen.calls, ElementsAre("init"));
}

TEST_F(NcclCommunicatorTest, APeerThatIsLostEndsTheStart) {
  script.hangs = true;
  peer_lost_ = true;
  EXPECT_THROW(Make(), PeerLost);
  EXPECT_THAT(seen.calls, ElementsAre("init", "abort"));
}

TEST_F(NcclCommunicatorTest, APeerThatIsSilentIsLost) {
  const auto device = Make();
  script.never_runs = true;
  EXPECT_THROW(ExchangeOnce(*device), PeerLost);
  EXPECT_EQ(seen.calls.back(), "abort");
  EXPECT_FALSE(seen.on_gpu);
  EXPECT_THROW(ExchangeOnce(*device), InternalError) << "of no use any more";
}

TEST_F(NcclCommunicatorTest, APeerThatIsLostEndsAWait) {
  const auto device = Make();
  script.never_runs = true;
  peer_lost_ = true;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THROW(ExchangeOnce(*device), PeerLost);
  EXPECT_LT(std::chrono::steady_clock::now() - start, kLimit);
  EXPECT_EQ(seen.calls.back(), "abort");
}

TEST_F(NcclCommunicatorTest, WhatNcclReportsIsALossOrAnErrorOfOurOwn) {
  for (const auto& [result, lost] : {std::pair{ncclRemoteError, true}, std::pair{ncclInternalError, true},
                                     std::pair{ncclUnhandledCudaError, false}, std::pair{ncclInvalidUsage, false}}) {
    for (const bool at_once : {true, false}) {
      script = {};
      seen = {};
      const auto device = Make();
      (at_once ? script.result : script.ends_with) = result;
      std::string loss, error;
      try {
        ExchangeOnce(*device);
      } catch (const PeerLost& caught) {
        loss = caught.what();
      } catch (const InternalError& caught) {
        error = caught.what();
      }
      EXPECT_EQ(loss.empty(), !lost);
      EXPECT_EQ(error.empty(), lost);
      EXPECT_NE((loss + error).find("details"), std::string::npos);
      EXPECT_EQ(seen.calls.back(), "abort");
    }
  }
}

TEST_F(NcclCommunicatorTest, LeftByAnExceptionItIsAborted) {
  try {
    const auto device = Make();
    throw FileError("of another cause");
  } catch (const FileError&) {
  }
  EXPECT_THAT(seen.calls, ElementsAre("init", "abort"));
}

TEST_F(NcclCommunicatorTest, AnEndThatHangsIsAborted) {
  {
    const auto device = Make();
    script.hangs = true;
  }
  EXPECT_THAT(seen.calls, ElementsAre("init", "finalize", "abort"));
}

TEST(NcclLibrary, HasAllFunctions) {
  // The real one: it needs no driver to be loaded.
  EXPECT_NE(LoadNccl().version.find('.'), std::string::npos);
}

}  // namespace
}  // namespace spotlight
