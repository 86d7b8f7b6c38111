// Copies to the host that are as late as a device's may be (kernels/stream.hpp): nothing is there before the caller has
// waited, and from the next copy's start on what was there is no number any more.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "kernels/memory.hpp"
#include "kernels/stream.hpp"

namespace spotlight {

class LateCopy : public HostCopy {
 public:
  void Reserve(std::int64_t size) override { values_.reserve(static_cast<std::size_t>(size)); }
  void Start(const float* from, std::int64_t size) override {
    std::fill(values_.begin(), values_.end(), std::numeric_limits<float>::quiet_NaN());
    under_way_.resize(static_cast<std::size_t>(size));
    CopyOut(under_way_.data(), from, under_way_.size() * sizeof(float));
    done_ = false;
  }
  bool Done() override { return done_; }
  std::span<const float> Values() override {
    if (!done_) values_.assign(under_way_.begin(), under_way_.end());
    done_ = true;
    return values_;
  }

 private:
  std::vector<float> under_way_, values_;
  bool done_ = true;
};

inline std::unique_ptr<HostCopy> MakeLateCopy() { return std::make_unique<LateCopy>(); }

}  // namespace spotlight
