// base/peer_memory.hpp for the memory of the host: anonymous shared memory that is found by way of its owner's file
// table, so that nothing is left behind.
#pragma once

#include <deque>
#include <map>

#include "base/peer_memory.hpp"

namespace spotlight {

class HostPeerMemory : public PeerMemory {
 public:
  HostPeerMemory() = default;
  ~HostPeerMemory() override;
  HostPeerMemory(const HostPeerMemory&) = delete;
  HostPeerMemory& operator=(const HostPeerMemory&) = delete;

  void UseFlags(void*, std::size_t) override {}
  Handle MakeWindow(std::size_t bytes) override;
  bool OpenWindow(int peer, const Handle& handle) override;
  void Push(int peer, std::size_t offset, const void* from, std::size_t bytes) override;
  void Take(std::size_t offset, void* to, std::size_t bytes) override;
  void Copy(const void* from, void* to, std::size_t bytes) override;
  void Raise(Flag& flag, std::uint64_t value) override;
  void Await(const Flag& flag, std::uint64_t value) override;
  bool Done() override;

 private:
  struct Window {
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
  };
  struct Operation {
    const Flag* await = nullptr;  // one of the three
    Flag* raise = nullptr;
    std::uint64_t value = 0;
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t bytes = 0;
  };
  static bool Run(const Operation& operation);  // false: not yet
  void Enqueue(const Operation& operation);

  int file_ = -1;
  Window own_;
  std::map<int, Window> peers_;
  std::deque<Operation> waiting_;
};

}  // namespace spotlight
