#include "kernels/recordings.hpp"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "kernels/operations.hpp"

namespace spotlight {
namespace {

// Which memory recordings may hold addresses of: all that was there when the newest of them was made. What came later,
// as the buffers of a decoder that live for one image, may go without harm.
struct Memory {
  std::mutex mutex;
  std::unordered_map<const void*, std::uint64_t> born;  // by `now`
  std::uint64_t now = 0;
  std::uint64_t newest_recording = 0;
  std::uint64_t generation = 0;  // grows when memory goes that a recording may use
};

Memory& TheMemory() {
  static Memory* const memory = new Memory;  // never destroyed: buffers of static lifetime are freed last
  return *memory;
}

}  // namespace

void NoteAllocated(const void* memory) {
  if (!ActiveOperations().records) return;
  Memory& all = TheMemory();
  const std::scoped_lock lock(all.mutex);
  all.born[memory] = ++all.now;
}

void NoteFreed(const void* memory) {
  if (!ActiveOperations().records) return;
  Memory& all = TheMemory();
  const std::scoped_lock lock(all.mutex);
  const auto found = all.born.find(memory);
  if (found == all.born.end()) return;
  if (found->second <= all.newest_recording) ++all.generation;
  all.born.erase(found);
}

void Recordings::Run(const Key& key, const std::function<void()>& launches) {
  if (!ActiveOperations().records) return launches();
  Memory& memory = TheMemory();
  {
    const std::scoped_lock lock(memory.mutex);
    if (generation_ != memory.generation) entries_.remove_if([](const Entry& e) { return e.graph != nullptr; });
    generation_ = memory.generation;
  }
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  if (found == entries_.end()) {
    if (entries_.size() == most_) entries_.pop_back();
    entries_.push_front({key, nullptr});
    return launches();
  }
  entries_.splice(entries_.begin(), entries_, found);
  Entry& entry = entries_.front();
  if (entry.graph == nullptr) {
    entry.graph = Record(launches);
    const std::scoped_lock lock(memory.mutex);
    memory.newest_recording = memory.now;
  } else {
    ++replayed_;
  }
  entry.graph->Replay();
}

}  // namespace spotlight
