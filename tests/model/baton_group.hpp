// A sequence-parallel group of P ranks within one process, for tests: each rank is a thread, and one runs at a time. It
// holds the baton until it has sent its part of an exchange. If one throws, so do the others at their next exchange.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/sequence_group.hpp"

namespace spotlight {

class Baton {
 public:
  explicit Baton(int ranks) : messages_(static_cast<std::size_t>(ranks * ranks)), ranks_(ranks) {}

  // Calls body(group) as each of the ranks.
  void Run(const std::function<void(SequenceGroup&)>& body) {
    std::vector<std::thread> threads;
    std::exception_ptr first_error;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([&, rank] {
        std::unique_lock lock(mutex_);
        Member member(*this, rank, lock);
        try {
          body(member);
        } catch (...) {
          if (first_error == nullptr) first_error = std::current_exception();
          broken_ = true;
          all_here_.notify_all();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (first_error != nullptr) std::rethrow_exception(first_error);
  }

 private:
  class Member : public SequenceGroup {
   public:
    Member(Baton& baton, int index, std::unique_lock<std::mutex>& lock) : baton_(baton), index_(index), lock_(lock) {}
    int size() const override { return baton_.ranks_; }
    int index() const override { return index_; }
    void AllToAll(const void* send, std::span<const Index> send_bytes, void* receive,
                  std::span<const Index> receive_bytes) override {
      const auto* sent = static_cast<const std::byte*>(send);
      for (int to = 0; to < size(); ++to) {
        const Index bytes = send_bytes[static_cast<std::size_t>(to)];
        baton_.Message(index_, to).assign(sent, sent + bytes);
        sent += bytes;
      }
      baton_.Meet(lock_);
      auto* received = static_cast<std::byte*>(receive);
      for (int from = 0; from < size(); ++from) {
        const std::vector<std::byte>& message = baton_.Message(from, index_);
        SPOTLIGHT_REQUIRE(static_cast<Index>(message.size()) == receive_bytes[static_cast<std::size_t>(from)],
                          "both sides agree on the sizes");
        received = std::copy(message.begin(), message.end(), received);
      }
      baton_.Meet(lock_);  // before anyone overwrites the messages
    }

   private:
    Baton& baton_;
    int index_;
    std::unique_lock<std::mutex>& lock_;
  };

  std::vector<std::byte>& Message(int from, int to) { return messages_[static_cast<std::size_t>(from * ranks_ + to)]; }

  void Meet(std::unique_lock<std::mutex>& lock) {
    const int round = round_;
    if (++here_ == ranks_) {
      here_ = 0;
      ++round_;
      all_here_.notify_all();
      return;
    }
    all_here_.wait(lock, [&] { return round_ != round || broken_; });
    SPOTLIGHT_REQUIRE(!broken_, "another rank has failed");
  }

  std::vector<std::vector<std::byte>> messages_;
  int ranks_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int here_ = 0, round_ = 0;
  bool broken_ = false;
};

}  // namespace spotlight
