// One rank's part of an exchange with one other.
#pragma once

#include <cstddef>

namespace spotlight {

// What one rank sends to and receives from one peer, in bytes. 0 bytes: nothing is sent, the address is not looked at.
struct PeerBytes {
  const void* send = nullptr;
  std::size_t send_bytes = 0;
  void* receive = nullptr;
  std::size_t receive_bytes = 0;
};

}  // namespace spotlight
