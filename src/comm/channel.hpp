// Request and reply between workers and the coordinator, over the network or inside one process.
//
// The network form is ZeroMQ (ROUTER and DEALER over TCP), so the death of a worker never touches anybody's MPI state.
// It is encrypted and authenticated by CURVE: the server makes a key pair per run, and only who was told its address
// (which holds the public key and travels over World::Broadcast) can talk to it; the key itself never travels in clear.
// Whoever else connects, as a port scanner, costs a descriptor until ZeroMQ's limit of 30 s for the handshake, and
// nothing of theirs is ever a request. No wait is unbounded and none polls.
//
// Who is gone: ZeroMQ's own threads watch each connection, with a heartbeat both ways, whatever the program computes
// meanwhile. A killed process is noticed at once, one that is stopped or cut off after kSilenceLimit; a long batch
// never looks like a death.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/messages.hpp"
#include "comm/peer_lost.hpp"

namespace spotlight {

class Client {
 public:
  virtual ~Client() = default;
  // Sends `request` and returns the reply. One call at a time. Throws CoordinatorLost if the connection has ended, or
  // there is no reply within the detection time; then a later call may succeed again, late replies are dropped.
  virtual Bytes Call(const Bytes& request) = 0;
  // Sends `request` without waiting; it is served before later calls, and gets no reply. False: too much is under way,
  // nothing was sent.
  virtual bool Post(const Bytes& request) = 0;
  // The newest message that the server has sent of its own accord (Server::Tell) since the last look. Never waits.
  virtual std::optional<Bytes> Heard() { return std::nullopt; }
};

// Makes the reply to a request.
using Handler = std::function<Bytes(const Bytes&)>;

class Server {
 public:
  virtual ~Server() = default;
  // Waits at most `timeout` for one request and answers it. False: there was none, or a signal came. What `handler`
  // throws comes out of here, and its caller gets no reply.
  virtual bool ServeOne(const Handler& handler, std::chrono::milliseconds timeout) = 0;
  // Sends `message` to the client of that name, if it has called before. Nothing waits for it: a client that does not
  // read, or is gone, does not get it.
  virtual void Tell(const std::string& /*name*/, const Bytes& /*message*/) {}
  // Names of the clients whose connection has ended since the last call, after their last request was served. Who never
  // called is not among them.
  virtual std::vector<std::string> TakeLost() { return {}; }
};

// Bytes. A server ends the connection of who sends more, so that nobody can ask for all its memory; of a client it is
// an InternalError.
inline constexpr std::size_t kLargestRequest = std::size_t{1} << 30;

// A connection that is silent for so long, heartbeats included, has ended. A single message must travel in less.
inline constexpr std::chrono::milliseconds kSilenceLimit = std::chrono::seconds(10);

class NetworkServer : public Server {
 public:
  // What MakeClient needs: "tcp://host:port key". A secret of the run: whoever has it can talk to the server.
  virtual std::string address() const = 0;
  // The same by another name, or number, of the machine.
  virtual std::string AddressAt(const std::string& host) const = 0;
};

// Listens on the loop-back interface if `host` is "127.0.0.1", else on all interfaces, telling clients the name `host`;
// on `port`, or a free one (0). UserError: the port cannot be had. Keep it alive until all clients have had their last
// reply; its end waits at most a second for that.
std::unique_ptr<NetworkServer> MakeServer(const std::string& host, int port = 0);
// `name`: what Server::TakeLost calls it, unique in the run; "": any. Throws InternalError if `address` is malformed;
// that nobody listens there shows at the first call, at once if the host answers.
std::unique_ptr<Client> MakeClient(const std::string& address, std::chrono::milliseconds detection_time,
                                   const std::string& name = "");

// One process plays all roles: ServeOne runs one `turn` of the worker, whose client calls the handler directly. True if
// it called at all; `timeout` is not used.
std::unique_ptr<Server> MakeLocalServer(std::function<void(Client&)> turn);

}  // namespace spotlight
