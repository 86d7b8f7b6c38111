// Every operation of kernels/ at Qwen-Image's sizes: bytes and arithmetic by definition over time, beside what the
// device does at most, measured in the same run.
//
//   bench_operations [--back_end=cuda|kokkos] [--small] [--only=TEXT] [--seconds=S]
//
// cuda: bf16, and fp32 for what has no other form; kokkos: fp32. --small: small sizes, which check the bookkeeping.
// --only: operations whose name has TEXT. --seconds: no new operation is begun after S seconds (default 90).
//
// An operation has as many copies of its arrays as take four times the largest cache, and is called on one after the
// other, so it finds nothing in a cache that its own calls have not just left there. One sample is a row of calls
// between two events; the time is the median of 20 samples over the number of calls, after a call that warms up. The
// peaks: a copy of 4 GiB in the device's memory, read and written; the best of cuBLASLt's bf16 products of 8192^3.
//
// Prints one JSON line: {"benchmark": "operations", "back_end": "cuda", "device": "...", "small": b,
// "copy_gb_per_s": g, "product_tflop_per_s": t, "memory_used_gb": g, "memory_total_gb": g, "operations": [{"name",
// "shape", "type": "bf16"|"fp32", "bytes", "flops", "copies", "calls", "median_s", "min_s", "gb_per_s",
// "tflop_per_s", "share"}, ...], "left_out": n}. share: of the copy's bytes a second where flops is 0, of the product's
// operations a second elsewhere. An operation that fails has "error" in place of numbers, and the exit code is 1. Exit
// code 2: the back end cannot be had, with the reason on stderr.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "kernels/back_end.hpp"
#include "kernels/runtime.hpp"
#include "tests/bench/device_meter.hpp"
#include "tests/bench/operation_cases.hpp"
#include "tests/bench/peaks.hpp"
#include "tests/bench/timing.hpp"

namespace spotlight {
namespace {

constexpr int kSamples = 20;
constexpr std::int64_t kMostCopies = 64;

struct Arguments {
  bool cuda = false, small = false;
  std::string only;
  double seconds = 90;
};

// The fields of one operation.
std::string Time(const OperationCase& operation, const Peaks& peaks, DeviceMeter& meter) {
  struct Copy {
    Arrays arrays;
    std::function<void()> call;
  };
  std::vector<std::unique_ptr<Copy>> copies;
  const auto add = [&] {
    auto copy = std::make_unique<Copy>();
    copy->call = operation.make(copy->arrays);
    copies.push_back(std::move(copy));
  };
  add();
  const Arrays& first = copies.front()->arrays;
  const double footprint = static_cast<double>(std::max<std::int64_t>(first.footprint(), 1));
  const auto wanted = static_cast<std::int64_t>(std::ceil(4 * meter.cache_bytes() / footprint));
  while (std::ssize(copies) < std::min(wanted, kMostCopies)) add();
  for (const auto& copy : copies) copy->call();
  meter.Start();
  copies.front()->call();
  // Enough calls that the clock and the launches of the first do not count.
  constexpr double kLeastSample = 5e-4;
  const double once = std::max(meter.Stop(), 1e-7);
  const auto calls = std::max(std::ssize(copies), static_cast<std::ptrdiff_t>(std::min(kLeastSample / once, 256.0)));

  std::vector<double> times;
  std::size_t next = 0;
  for (int sample = 0; sample < kSamples; ++sample) {
    meter.Start();
    for (std::ptrdiff_t call = 0; call < calls; ++call) copies[next++ % copies.size()]->call();
    times.push_back(meter.Stop() / static_cast<double>(calls));
  }
  std::sort(times.begin(), times.end());
  const double median = (times[(kSamples - 1) / 2] + times[kSamples / 2]) / 2;
  const double bytes_per_s = static_cast<double>(first.bytes()) / median;
  const double flops_per_s = static_cast<double>(operation.flops) / median;
  const double share = operation.flops == 0 ? bytes_per_s / peaks.bytes_per_s : flops_per_s / peaks.flops_per_s;
  return fmt::format(R"("bytes": {}, "flops": {}, "copies": {}, "calls": {}, "median_s": {:.4e}, "min_s": {:.4e}, )"
                     R"("gb_per_s": {:.2f}, "tflop_per_s": {:.3f}, "share": {:.4f})",
                     first.bytes(), operation.flops, copies.size(), calls, median, times.front(), bytes_per_s / 1e9,
                     flops_per_s / 1e12, share);
}

int Bench(const Arguments& arguments) {
  const auto began = std::chrono::steady_clock::now();
  LogLine(ChooseBackEnd({.back_end = arguments.cuda ? BackEnd::kCuda : BackEnd::kKokkos}));
  const std::unique_ptr<DeviceMeter> meter = MakeDeviceMeter();
  const BenchSizes sizes = arguments.small ? BenchSizes::Small() : BenchSizes::QwenImage();
  const Peaks peaks = MeasurePeaks(sizes, *meter);

  std::vector<OperationCase> cases;
  const auto add = [&](std::vector<OperationCase> more) {
    std::move(more.begin(), more.end(), std::back_inserter(cases));
  };
  if (arguments.cuda) {
    add(ElementwiseCases(sizes, ElementType::kBf16));
    add(ProductCases(sizes, ElementType::kBf16));
  }
  add(ElementwiseCases(sizes, ElementType::kFp32));
  if (!arguments.cuda || arguments.small) {
    add(ProductCases(sizes, ElementType::kFp32));
  } else {
    std::vector<OperationCase> products = ProductCases(sizes, ElementType::kFp32);
    std::erase_if(products, [](const OperationCase& product) { return product.name != "convolve"; });
    add(std::move(products));
  }
  std::erase_if(cases, [&](const OperationCase& each) { return each.name.find(arguments.only) == std::string::npos; });

  std::string rows;
  int failures = 0, left_out = 0;
  for (const OperationCase& operation : cases) {
    const std::chrono::duration<double> so_far = std::chrono::steady_clock::now() - began;
    if (so_far.count() > arguments.seconds) {
      ++left_out;
      continue;
    }
    std::string fields;
    try {
      fields = Time(operation, peaks, *meter);
    } catch (const std::exception& error) {
      fields = "\"error\": " + Quoted(error.what());
      ++failures;
    }
    rows +=
        fmt::format(R"({}{{"name": "{}", "shape": "{}", "type": "{}", {}}})", rows.empty() ? "" : ", ", operation.name,
                    operation.shape, operation.type == ElementType::kBf16 ? "bf16" : "fp32", fields);
  }
  fmt::print(R"({{"benchmark": "operations", "back_end": "{}", "device": {}, "small": {}, "copy_gb_per_s": {:.2f}, )"
             R"("product_tflop_per_s": {:.3f}, "memory_used_gb": {:.2f}, "memory_total_gb": {:.2f}, )"
             R"("operations": [{}], "left_out": {}}})"
             "\n",
             arguments.cuda ? "cuda" : "kokkos", Quoted(meter->device()), arguments.small, peaks.bytes_per_s / 1e9,
             peaks.flops_per_s / 1e12, meter->used_bytes() / 1e9, meter->total_bytes() / 1e9, rows, left_out);
  return failures > 0 ? 1 : 0;
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--back_end=cuda") {
      arguments.cuda = true;
    } else if (word == "--back_end=kokkos") {
      arguments.cuda = false;
    } else if (word == "--small") {
      arguments.small = true;
    } else if (word.starts_with("--only=")) {
      arguments.only = word.substr(7);
    } else if (word.starts_with("--seconds=")) {
      arguments.seconds = std::stod(word.substr(10));
    } else {
      throw UserError(word + "? --back_end=cuda|kokkos, --small, --only=TEXT, --seconds=S");
    }
  }
  return arguments;
}

}  // namespace
}  // namespace spotlight

int main(int argc, char** argv) {
  using namespace spotlight;
  StartKernels(BenchThreads());
  int code = 0;
  try {
    code = Bench(Parse(argc, argv));
  } catch (const UserError& error) {
    std::fprintf(stderr, "bench_operations: %s\n", error.what());
    code = 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_operations: %s\n", error.what());
    code = 1;
  }
  StopKernels();
  return code;
}
