// The one place where host kernels meet Kokkos: a parallel loop over independent work items.
//
// Determinism contract of every kernel in this folder: item i is computed by one thread, in a fixed
// order of operations that depends neither on the number of threads nor on the other items. Sums
// over items are made of per-block partial sums with fixed block borders, added in block order.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>

namespace spotlight {

// What items have thrown: OpenMP ends the process if an exception leaves its threads.
class FirstException {
 public:
  // Within a handler.
  void Keep() {
    const std::scoped_lock lock(mutex_);
    if (first_ == nullptr) first_ = std::current_exception();
  }
  void Rethrow() const {
    if (first_ != nullptr) std::rethrow_exception(first_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr first_;
};

// body(i) for i in [0, items) on several threads. A function of its own, so that the compiler makes of a loop on one
// thread what it did without handlers.
template <typename Body>
[[gnu::noinline]] void RunOnThreads(const char* name, std::int64_t items, const Body& body) {
  using Space = Kokkos::DefaultHostExecutionSpace;
  FirstException failure;
  Kokkos::parallel_for(name, Kokkos::RangePolicy<Space>(0, items), [body, &failure](std::int64_t i) {
    try {
      body(i);
    } catch (...) {
      failure.Keep();
    }
  });
  Space().fence();
  failure.Rethrow();
}

// body(i) for i in [0, items). An exception of an item, of several one, is the caller's when the others have ended.
template <typename Body>
void ParallelFor(const char* name, std::int64_t items, const Body& body) {
  if (items > 1 && Kokkos::DefaultHostExecutionSpace().concurrency() > 1) return RunOnThreads(name, items, body);
  for (std::int64_t i = 0; i < items; ++i) body(i);  // a launch costs more than a small item
}

// body(begin, end) over the blocks of [0, size): for pointwise loops.
template <typename Body>
void ParallelBlocks(const char* name, std::int64_t size, const Body& body) {
  constexpr std::int64_t kBlock = 8192;  // floats: a few arrays of it stay in the L1 and L2 caches
  ParallelFor(name, (size + kBlock - 1) / kBlock,
              [=](std::int64_t block) { body(block * kBlock, std::min(size, (block + 1) * kBlock)); });
}

}  // namespace spotlight
