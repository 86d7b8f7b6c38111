// What the device does at most, measured, and text for JSON.
#pragma once

#include <string>

#include "tests/bench/device_meter.hpp"
#include "tests/bench/operation_cases.hpp"

namespace spotlight {

struct Peaks {
  double bytes_per_s = 0;  // of a copy of sizes.copy_bytes in the device's memory: what is read and what is written
  double flops_per_s = 0;  // of the library's best product of sizes.product_side^3: bf16 on a GPU, fp32 on the CPU
};
Peaks MeasurePeaks(const BenchSizes& sizes, DeviceMeter& meter);

// As a JSON string; what would need an escape is left out.
std::string Quoted(std::string text);

}  // namespace spotlight
