// Clocks and peaks of whatever computes, for the benchmarks that run on a GPU or, to check their bookkeeping, on the
// CPU. CUDA's is a library of its own beside the program (cuda_meter.cpp), because the program links nothing of CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace spotlight {

class DeviceMeter {
 public:
  virtual ~DeviceMeter() = default;

  virtual std::string device() const = 0;
  virtual double cache_bytes() const = 0;  // the largest cache: what is measured cold must not stay in it

  // Seconds from Start to Stop, by the clock of what computes; Stop waits for everything before it.
  virtual void Start() = 0;
  virtual double Stop() = 0;

  // Copies `bytes` within the device's memory; enqueued, as operations are.
  virtual void Copy(void* to, const void* from, std::size_t bytes) = 0;
  // Seconds of the fastest product of two square matrices that the library has: c = a b, bf16 with fp32 sums on a GPU
  // (a, b, c: Bfloat16), fp32 on the CPU.
  virtual double ProductSeconds(std::int64_t side, const void* a, const void* b, void* c) = 0;

  // Of the device, by all processes; 0 on the CPU.
  virtual double used_bytes() const = 0;
  virtual double total_bytes() const = 0;
};

// Of the active back end, which must have been chosen.
std::unique_ptr<DeviceMeter> MakeDeviceMeter();

// What libspotlight_cuda_meter.so exports under the name kCudaMeterEntry; `stream` is where the operations run.
using CudaMeterEntry = DeviceMeter* (*)(void* stream);
inline constexpr const char* kCudaMeterEntry = "SpotlightCudaMeter";

}  // namespace spotlight
