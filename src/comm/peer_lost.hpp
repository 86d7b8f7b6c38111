// The loss of a peer: neither a user mistake nor a bug. Whoever calls a peer handles it.
#pragma once

#include <stdexcept>

namespace spotlight {

// The peer died, left, or was silent longer than the detection time.
class PeerLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The peer is the coordinator: nobody is left to report anything to.
class CoordinatorLost : public PeerLost {
 public:
  using PeerLost::PeerLost;
};

}  // namespace spotlight
