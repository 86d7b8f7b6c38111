// A DeviceCommunicator for tests, over kernel memory that is the host's: messages go by the exchange of a sequence
// group, be it between threads or over MPI.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/sequence_group.hpp"
#include "comm/device_communicator.hpp"

namespace spotlight {

class GroupCommunicator : public DeviceCommunicator {
 public:
  explicit GroupCommunicator(SequenceGroup& group) : group_(group) {}
  std::string name() const override { return "a group"; }
  int size() const override { return group_.size(); }
  int index() const override { return group_.index(); }

  void StartExchange(std::span<const PeerBytes> peers, void*) override {
    SPOTLIGHT_REQUIRE(followed_, "one exchange at a time");
    followed_ = false;
    std::vector<Index> send_bytes, receive_bytes;
    std::vector<std::byte> sent, received;
    for (int p = 0; p < size(); ++p) {
      const PeerBytes& peer = peers[static_cast<std::size_t>(p)];
      const bool other = p != index();
      send_bytes.push_back(other ? static_cast<Index>(peer.send_bytes) : 0);
      receive_bytes.push_back(other ? static_cast<Index>(peer.receive_bytes) : 0);
      const auto* from = static_cast<const std::byte*>(peer.send);
      sent.insert(sent.end(), from, from + send_bytes.back());
      received.resize(received.size() + static_cast<std::size_t>(receive_bytes.back()));
    }
    most_bytes_ = std::max(most_bytes_, received.size());
    group_.AllToAll(sent.data(), send_bytes, received.data(), receive_bytes);
    const std::byte* at = received.data();
    for (int p = 0; p < size(); ++p) {
      const auto bytes = static_cast<std::size_t>(receive_bytes[static_cast<std::size_t>(p)]);
      if (bytes > 0) std::memcpy(peers[static_cast<std::size_t>(p)].receive, at, bytes);
      at += bytes;
    }
  }
  void StartGather(void* memory, std::size_t piece_bytes, void* queue) override {
    auto* const pieces = static_cast<std::byte*>(memory);
    std::vector<PeerBytes> peers;
    for (int p = 0; p < size(); ++p) {
      peers.push_back({pieces + static_cast<std::size_t>(index()) * piece_bytes, piece_bytes,
                       pieces + static_cast<std::size_t>(p) * piece_bytes, piece_bytes});
    }
    StartExchange(peers, queue);
  }
  void StartBroadcast(void* memory, std::size_t bytes, int root, void* queue) override {
    std::vector<PeerBytes> peers(static_cast<std::size_t>(size()));
    for (int p = 0; p < size(); ++p) {
      if (index() == root) peers[static_cast<std::size_t>(p)] = {memory, bytes, nullptr, 0};
    }
    if (index() != root) peers[static_cast<std::size_t>(root)] = {nullptr, 0, memory, bytes};
    StartExchange(peers, queue);
  }
  void Follow(void*) override { followed_ = true; }
  void Wait() override { ++waits_; }

  std::size_t most_bytes() const { return most_bytes_; }  // that one exchange has received
  int waits() const { return waits_; }

 private:
  SequenceGroup& group_;
  bool followed_ = true;
  std::size_t most_bytes_ = 0;
  int waits_ = 0;
};

}  // namespace spotlight
