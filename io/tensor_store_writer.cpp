// The writing thread of TensorStore. It holds the lock only to take a commit and to note what became of it, never while
// the disk works; no exception leaves it.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/failpoint.hpp"
#include "io/tensor_store.hpp"
#include "io/tensor_store_folder.hpp"

namespace spotlight {

void TensorStore::RunWriter() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (counts_.failing) {
      wake_.wait_for(lock, std::chrono::duration<double>(options_.retry_seconds), [this] { return stop_; });
      // With nothing to try it on, the next commit will show whether the disk works again.
      if (queue_.empty()) counts_.failing = false;
    } else {
      wake_.wait(lock, [this] { return stop_ || !queue_.empty() || !forgotten_.empty(); });
    }
    auto forgotten = std::exchange(forgotten_, {});
    if (!forgotten.empty()) {
      lock.unlock();
      std::string failure;
      for (const auto& file : forgotten) {
        if (unlink(file->Path().c_str()) != 0) failure = file->Path() + ": cannot remove: " + std::strerror(errno);
      }
      forgotten.clear();  // closes them, which is when the disk is freed
      lock.lock();
      if (!failure.empty()) problems_.push_back(failure);
    }
    if (stop_) return;
    if (!queue_.empty()) WriteFront(lock);
  }
}

void TensorStore::WriteFront(std::unique_lock<std::mutex>& lock) {
  const Key key = queue_.front();
  queue_.pop_front();
  Entry& taken = entries_.at(key);
  taken.queued = false;
  std::shared_ptr<const Commit> commit = taken.pending;
  if (commit == nullptr) {  // nobody wants it any more
    written_.notify_all();
    return;
  }
  writing_ = key;
  lock.unlock();

  const auto start = std::chrono::steady_clock::now();
  std::size_t bytes = 0;
  std::string failure;
  try {
    bytes = WriteCommit(key, *commit);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;

  lock.lock();
  writing_.reset();
  counts_.write_seconds += passed.count();
  const auto found = entries_.find(key);
  Entry* const entry = found == entries_.end() ? nullptr : &found->second;  // null: forgotten meanwhile
  if (failure.empty()) {
    ++counts_.commits;
    counts_.bytes += bytes;
    if (std::exchange(counts_.failing, false)) problems_.push_back(options_.path + ": can be written again");
    if (entry != nullptr) entry->written = ProgressOf(*commit);
    if (entry != nullptr && entry->pending == commit) {
      counts_.pending_bytes -= commit->Bytes();
      entry->pending.reset();
    }
  } else {
    if (!std::exchange(counts_.failing, true)) {
      problems_.push_back(failure + "; the run goes on, tries again, and until then keeps the newest states in memory");
    }
    if (entry != nullptr && !std::exchange(entry->queued, true)) queue_.push_front(key);
  }
  written_.notify_all();
  // The memory goes without the lock.
  lock.unlock();
  commit.reset();
  lock.lock();
}

std::size_t TensorStore::WriteCommit(const Key& key, const Commit& commit) {
  std::shared_ptr<TensorStoreFile> file;
  std::size_t slot = 0;
  std::uint64_t sequence = 0;
  const auto find = [&] {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (found == entries_.end()) return;
    file = found->second.file;
    slot = found->second.slot;
    sequence = ++sequence_;
  };
  find();
  for (bool other_slot = file == nullptr;; other_slot = true) {
    if (other_slot) {
      GiveSlot(key);
      find();
    }
    if (file == nullptr) return 0;  // forgotten meanwhile
    Failpoint("store.write");
    if (const std::optional<std::size_t> bytes = file->Write(slot, commit, sequence)) return *bytes;
  }
}

// Gives the request a slot that was never written, in a new file where all are taken.
void TensorStore::GiveSlot(const Key& key) {
  const std::uint32_t iteration = std::get<0>(key);
  std::shared_ptr<TensorStoreFile> file;
  std::optional<std::size_t> slot;
  {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(iteration);
    if (found != files_.end()) file = found->second.back();
  }
  if (file != nullptr) slot = file->TakeSlot();
  if (!slot) {
    std::string path;
    std::size_t number = 0;
    do {
      path = fmt::format("{}/{}", options_.path, TensorStoreFileName(iteration, number++));
    } while (std::filesystem::exists(path));
    file = TensorStoreFile::Create(path, format_);
    slot = file->TakeSlot();
    const std::lock_guard lock(mutex_);
    (iteration < first_iteration_ ? forgotten_ : files_[iteration]).push_back(file);
  }
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  found->second.file = file;
  found->second.slot = *slot;
}

}  // namespace spotlight
