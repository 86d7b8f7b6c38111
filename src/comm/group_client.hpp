// The coordinator as a sequence-parallel group sees it: the leader asks, and all members get the reply.
//
// Members run the same code in the same order, so each call of the leader meets one of every follower; what a follower
// would ask is not sent anywhere.
#pragma once

#include "comm/channel.hpp"
#include "comm/sp_group.hpp"

namespace spotlight {

class GroupClient : public Client {
 public:
  // own: this rank's connection to the coordinator, which is used while it leads. Both must outlive this.
  GroupClient(SpGroup& group, Client& own) : group_(group), own_(own) {}

  // Throws what the leader's call throws, and PeerLost.
  Bytes Call(const Bytes& request) override {
    Bytes reply;
    if (group_.index() == 0) reply = own_.Call(request);
    group_.Broadcast(reply);
    return reply;
  }
  bool Post(const Bytes& request) override { return group_.index() != 0 || own_.Post(request); }

 private:
  SpGroup& group_;
  Client& own_;
};

}  // namespace spotlight
