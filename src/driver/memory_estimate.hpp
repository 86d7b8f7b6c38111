// The memory that a rank needs, by arithmetic from the input and the model's sizes: no weights are read.
#pragma once

#include <string>
#include <vector>

#include "comm/roles.hpp"
#include "config/config.hpp"
#include "model/dit_layout.hpp"

namespace spotlight {

// Bytes of one rank.
struct MemoryEstimate {
  double weights = 0;      // base and modulation table, and the versions of the trained weights
  double base = 0;         // of them: the weights under an adapter, without what a modulation table replaces
  double table = 0;        // of them: the modulation table
  double optimizer = 0;    // trainer only: its shares of master weights, gradient, moments, average; sums; checkpoint
  double activations = 0;  // of the largest batch that the rank works on, and the image decoder
  double control = 0;      // messages; coordinator: published weights, the iteration's samples
  double program = 0;      // code and libraries, measured
  double total() const { return weights + optimizer + activations + control + program; }
  // What has to be on the device, if the rank has one, and what stays in the host's memory.
  double device() const { return weights + optimizer_on_device + activations + exchange + scratch_on_device; }
  double beside_device() const { return total() - weights - optimizer_on_device - activations; }
  double optimizer_on_device = 0;  // without the copies that a checkpoint makes
  double exchange = 0;             // only on a device: windows of a node's ranks, pieces of the trainers' sums
  double scratch_on_device = 0;    // what the libraries work in, of the largest call
};

// text_tokens: of the longest prompt. sigmas: rows of the modulation table.
MemoryEstimate EstimateMemory(const Config& config, const DitLayout& layout, Index text_tokens, Index sigmas,
                              Role role);

// A kind of device and its memory.
struct DeviceKind {
  const char* name;
  double bytes;  // that a program gets
};
inline constexpr DeviceKind kDeviceKinds[] = {{"H100-80", 79.1 * 1024 * 1024 * 1024},
                                              {"H200-141", 139.8 * 1024 * 1024 * 1024}};

// Floating-point operations of one forward pass of one sample (one guidance branch): linear layers and attention.
double ForwardFlops(const TransformerConfig& model, double image_tokens, double text_tokens);

}  // namespace spotlight
