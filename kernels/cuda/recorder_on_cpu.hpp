// Recordings of launches in the emulation (kernels/stream.hpp): what a graph of launches does on a device. A launch
// while one is made is kept, with the values that its arguments have then, and does not run before the replay.
#pragma once

#include <functional>
#include <memory>

#include "kernels/stream.hpp"

namespace spotlight::on_cpu {

// Whether the calling thread records.
bool IsRecording();
// While it does: keeps what a replay runs, and memory that a replay uses.
void Keep(std::function<void()> launch);
void Keep(std::shared_ptr<void> memory);

// Record() for tables of operations of the emulation.
std::unique_ptr<LaunchGraph> Record(const std::function<void()>& launches);

}  // namespace spotlight::on_cpu
