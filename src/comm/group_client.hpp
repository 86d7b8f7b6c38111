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
  // leader: the connection to the coordinator; null on followers. Both must outlive this.
  GroupClient(SpGroup& group, Client* leader) : group_(group), leader_(leader) {}

  // Throws what the leader's call throws, and PeerLost.
  Bytes Call(const Bytes& request) override {
    Bytes reply;
    if (leader_ != nullptr) reply = leader_->Call(request);
    group_.Broadcast(reply);
    return reply;
  }

 private:
  SpGroup& group_;
  Client* leader_;
};

}  // namespace spotlight
