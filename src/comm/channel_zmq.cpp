#include <fmt/format.h>
#include <netdb.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>
#include <zmq.hpp>

#include "base/error.hpp"
#include "comm/channel.hpp"

namespace spotlight {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kHighWater = 64;              // messages, of each connection and direction
constexpr std::size_t kKeyText = 41;        // 40 characters of Z85 and a 0
constexpr std::uint64_t kPosted = 0;        // the call number of a request, or word, that wants no reply
constexpr std::size_t kAdopted = 4096;      // bytes; below, a copy is cheaper than a hand-over
constexpr std::size_t kBetweenLooks = 256;  // requests served between two looks at ended connections

struct KeyPair {
  std::string public_key;
  std::string secret_key;
};

KeyPair MakeKeyPair() {
  std::array<char, kKeyText> public_key{};
  std::array<char, kKeyText> secret_key{};
  SPOTLIGHT_REQUIRE(zmq_curve_keypair(public_key.data(), secret_key.data()) == 0, "ZeroMQ was built without CURVE");
  return {public_key.data(), secret_key.data()};
}

// A ZeroMQ message that takes over `bytes`, so that weights are not copied once more.
zmq::message_t Adopt(Bytes bytes) {
  if (bytes.size() < kAdopted) return zmq::message_t(bytes.data(), bytes.size());
  auto owned = std::make_unique<Bytes>(std::move(bytes));
  Bytes* raw = owned.get();
  zmq::message_t message(
      raw->data(), raw->size(), [](void*, void* hint) { delete static_cast<Bytes*>(hint); }, raw);
  static_cast<void>(owned.release());  // the message owns it from here
  return message;
}

Bytes ToBytes(const zmq::message_t& message) {
  const auto* data = message.data<std::byte>();
  return {data, data + message.size()};
}

// Waits until one of two sockets has something to read, time is up or a signal comes.
void WaitReadable(zmq::socket_t& a, zmq::socket_t& b, milliseconds timeout) {
  std::array<zmq::pollitem_t, 2> items = {{{a.handle(), 0, ZMQ_POLLIN, 0}, {b.handle(), 0, ZMQ_POLLIN, 0}}};
  try {
    zmq::poll(items.data(), items.size(), timeout);
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw;
  }
}

// A message that has come, without waiting: the number of its parts, which ZeroMQ delivers together; 0: there is none.
// Parts beyond `parts` are dropped.
template <std::size_t kParts>
std::size_t Receive(zmq::socket_t& socket, std::array<zmq::message_t, kParts>& parts) {
  std::size_t count = 0;
  zmq::message_t beyond;
  while (true) {
    zmq::message_t& part = count < kParts ? parts[count] : beyond;
    if (!socket.recv(part, zmq::recv_flags::dontwait)) return 0;
    ++count;
    if (!part.more()) return count;
  }
}

// What happens to the connections of one socket.
class ConnectionEvents {
 public:
  struct Event {
    int kind = 0;        // one of kKinds
    int descriptor = 0;  // of the connection, where one is accepted or has ended
  };

  static constexpr int kKinds =
      ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CONNECT_RETRIED;

  ConnectionEvents(zmq::context_t& context, zmq::socket_t& watched) : socket_(context, zmq::socket_type::pair) {
    socket_.set(zmq::sockopt::rcvhwm, 0);  // ZeroMQ's thread waits for room, and all connections with it
    const char* const kPlace = "inproc://connections";
    const int code = zmq_socket_monitor(watched.handle(), kPlace, kKinds);
    SPOTLIGHT_REQUIRE(code == 0, "ZeroMQ watches no connections");
    socket_.connect(kPlace);
    socket_.set(zmq::sockopt::linger, 0);
  }

  zmq::socket_t& socket() { return socket_; }

  // The next one, without waiting. A message of ZeroMQ's: kind u16 and descriptor u32, then the endpoint.
  std::optional<Event> Next() {
    std::array<zmq::message_t, 2> parts;
    if (Receive(socket_, parts) == 0 || parts[0].size() != sizeof(std::uint16_t) + sizeof(std::uint32_t)) {
      return std::nullopt;
    }
    std::uint16_t kind = 0;
    std::uint32_t value = 0;
    std::memcpy(&kind, parts[0].data(), sizeof(kind));
    std::memcpy(&value, parts[0].data<char>() + sizeof(kind), sizeof(value));
    return Event{kind, static_cast<int>(value)};
  }

 private:
  zmq::socket_t socket_;
};

// Whether this machine knows the host of tcp://HOST:PORT.
bool Resolves(const std::string& endpoint) {
  const std::size_t begin = endpoint.rfind('/') + 1;
  addrinfo hints{};
  hints.ai_family = AF_INET;  // as ZeroMQ asks
  addrinfo* found = nullptr;
  const bool known =
      getaddrinfo(endpoint.substr(begin, endpoint.rfind(':') - begin).c_str(), nullptr, &hints, &found) == 0;
  if (known) freeaddrinfo(found);
  return known;
}

void SetHeartbeat(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::heartbeat_ivl, 1000);
  socket.set(zmq::sockopt::heartbeat_timeout, static_cast<int>(kSilenceLimit.count()));
}

// Parts of a request and its reply, after the client's name, which only the ROUTER sees: call number, bytes. What has
// other parts is dropped.
class ZmqServer : public NetworkServer {
 public:
  ZmqServer(const std::string& host, int port) : host_(host), socket_(context_, zmq::socket_type::router) {
    const KeyPair keys = MakeKeyPair();
    socket_.set(zmq::sockopt::curve_server, true);
    socket_.set(zmq::sockopt::curve_secretkey, keys.secret_key);
    socket_.set(zmq::sockopt::sndhwm, kHighWater);
    socket_.set(zmq::sockopt::rcvhwm, kHighWater);
    socket_.set(zmq::sockopt::maxmsgsize, static_cast<std::int64_t>(kLargestRequest));  // else the connection ends
    socket_.set(zmq::sockopt::linger, 1000);  // the last replies are still on their way at the end
    socket_.set(zmq::sockopt::sndtimeo, 0);   // never wait for a client
    SetHeartbeat(socket_);
    events_.emplace(context_, socket_);
    const std::string wanted = port == 0 ? "*" : std::to_string(port);
    try {
      socket_.bind(fmt::format("tcp://{}:{}", host == "127.0.0.1" ? host : "0.0.0.0", wanted));
    } catch (const zmq::error_t& error) {
      throw UserError(fmt::format("ranks/port = {}: nobody can listen there: {}; take another one, or 0 for any",
                                  wanted, error.what()));
    }
    const std::string endpoint = socket_.get(zmq::sockopt::last_endpoint);
    port_and_key_ = fmt::format("{} {}", endpoint.substr(endpoint.rfind(':') + 1), keys.public_key);
  }

  std::string address() const override { return AddressAt(host_); }
  std::string AddressAt(const std::string& host) const override {
    return fmt::format("tcp://{}:{}", host, port_and_key_);
  }

  bool ServeOne(const Handler& handler, milliseconds timeout) override {
    if (served_ % kBetweenLooks == 0) NoteEvents();
    std::size_t parts = Receive(socket_, parts_);
    const Clock::time_point deadline = parts == 0 ? Clock::now() + timeout : Clock::time_point();
    while (parts == 0) {
      // A look for requests after that for events: nobody counts as lost with a request unserved.
      NoteEvents();
      parts = Receive(socket_, parts_);
      if (parts != 0) break;
      ReportEnded(true);
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
      if (!lost_.empty() || left <= milliseconds(0)) return false;
      WaitReadable(socket_, events_->socket(), left);
    }
    ++served_;
    if (!ended_.empty()) ReportEnded(false);
    if (parts == parts_.size()) Serve(handler);
    return true;
  }

  void Tell(const std::string& name, const Bytes& message) override {
    socket_.send(zmq::buffer(name), zmq::send_flags::sndmore);
    socket_.send(zmq::buffer(&kPosted, sizeof(kPosted)), zmq::send_flags::sndmore);
    socket_.send(zmq::buffer(message), zmq::send_flags::none);
  }

  std::vector<std::string> TakeLost() override { return std::exchange(lost_, {}); }

 private:
  // A connection that has ended.
  struct Ended {
    std::string name;  // "": none of its requests has been served
    int descriptor = 0;
    std::uint64_t unserved_until = 0;  // until so many have been served, requests of its may still wait
  };

  void Serve(const Handler& handler) {
    auto& [name, number, request] = parts_;
    std::uint64_t call = kPosted;
    if (number.size() != sizeof(call)) return;
    std::memcpy(&call, number.data(), sizeof(call));
    NameConnection(request.get(ZMQ_SRCFD), name.to_string_view());
    zmq::message_t reply = Adopt(handler(ToBytes(request)));
    if (call == kPosted) return;
    // A client that has left meanwhile, or does not read, makes ROUTER drop the reply.
    socket_.send(name, zmq::send_flags::sndmore);
    socket_.send(number, zmq::send_flags::sndmore);
    socket_.send(reply, zmq::send_flags::none);
  }

  // By the descriptor that its requests come through a connection gets its name, and nobody's end goes unseen: neither
  // if the request is served after the connection has ended, nor if another one has its descriptor by now.
  void NameConnection(int descriptor, std::string_view name) {
    const auto is_it = [&] {
      const auto found = connected_.find(descriptor);
      return found != connected_.end() && found->second == name;
    };
    if (is_it()) return;
    NoteEvents();  // that tell of the end of who had the descriptor before
    if (is_it()) return;
    // Whose first request this is. If one of them has ended, it was there first, and so was its request.
    const auto ended = std::find_if(ended_.begin(), ended_.end(), [&](const Ended& connection) {
      return connection.descriptor == descriptor && connection.name.empty();
    });
    if (ended != ended_.end()) {
      ended->name = name;
    } else if (const auto found = connected_.find(descriptor); found != connected_.end() && found->second.empty()) {
      found->second = name;
    }
  }

  void NoteEvents() {
    while (const auto event = events_->Next()) {
      if (event->kind != ZMQ_EVENT_ACCEPTED && event->kind != ZMQ_EVENT_DISCONNECTED) continue;
      if (const auto found = connected_.find(event->descriptor); found != connected_.end()) {
        // Clients are served by turns.
        ended_.push_back({found->second, found->first, served_ + kHighWater * (connected_.size() + ended_.size())});
        connected_.erase(found);
      }
      if (event->kind == ZMQ_EVENT_ACCEPTED) connected_.emplace(event->descriptor, "");
    }
  }

  // all: no request waits.
  void ReportEnded(bool all) {
    std::erase_if(ended_, [&](const Ended& ended) {
      if (!all && served_ < ended.unserved_until) return false;
      if (!ended.name.empty()) lost_.push_back(ended.name);  // else it never called, as a port scanner
      return true;
    });
  }

  std::string host_;
  zmq::context_t context_;
  zmq::socket_t socket_;
  std::optional<ConnectionEvents> events_;
  std::unordered_map<int, std::string> connected_;  // by descriptor; "": has not called yet
  std::array<zmq::message_t, 3> parts_;             // of a request: name, call number, bytes
  std::uint64_t served_ = 0;
  std::vector<Ended> ended_;
  std::vector<std::string> lost_;
  std::string port_and_key_;
};

class ZmqClient : public Client {
 public:
  ZmqClient(const std::string& endpoint, const std::string& server_key, milliseconds detection_time,
            const std::string& name)
      : detection_time_(detection_time), endpoint_(endpoint), socket_(context_, zmq::socket_type::dealer) {
    const KeyPair keys = MakeKeyPair();
    socket_.set(zmq::sockopt::curve_serverkey, server_key);
    socket_.set(zmq::sockopt::curve_publickey, keys.public_key);
    socket_.set(zmq::sockopt::curve_secretkey, keys.secret_key);
    socket_.set(zmq::sockopt::sndhwm, kHighWater);
    socket_.set(zmq::sockopt::rcvhwm, kHighWater);
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::sndtimeo, static_cast<int>(detection_time.count()));
    if (!name.empty()) socket_.set(zmq::sockopt::routing_id, name);
    SetHeartbeat(socket_);
    events_.emplace(context_, socket_);
    socket_.connect(endpoint);
  }

  bool Post(const Bytes& request) override {
    // All parts or none: ZeroMQ counts a message when its last part is sent.
    return SendParts(kPosted, request, zmq::send_flags::dontwait);
  }

  std::optional<Bytes> Heard() override {
    Parts parts;
    while (const std::size_t count = Receive(socket_, parts)) {
      if (Answers(parts, count, kPosted)) heard_ = ToBytes(parts[1]);
    }
    return std::exchange(heard_, std::nullopt);
  }

  Bytes Call(const Bytes& request) override {
    const Clock::time_point deadline = Clock::now() + detection_time_;
    ++number_;
    // Parts are queued together, so the send waits at most once.
    if (!SendParts(number_, request, zmq::send_flags::none)) throw Silent();
    bool ended = false, refused = false;
    while (true) {
      Parts parts;
      std::size_t count = Receive(socket_, parts);
      if (count == 0) {
        // After the event of the end comes a last look for a reply that was sent before it.
        while (const auto event = events_->Next()) {
          ended = ended || event->kind == ZMQ_EVENT_DISCONNECTED;
          refused = event->kind == ZMQ_EVENT_CONNECT_RETRIED;
        }
        count = Receive(socket_, parts);
      }
      if (Answers(parts, count, number_)) return ToBytes(parts[1]);
      if (Answers(parts, count, kPosted)) heard_ = ToBytes(parts[1]);
      if (count != 0) continue;  // else of an earlier call, which has given up
      if (ended) {
        throw CoordinatorLost(
            fmt::format("the connection to the coordinator at {} has ended [{}]", endpoint_, ProcessName()));
      }
      if (refused) {
        throw CoordinatorLost(fmt::format("nobody listens at {}{} [{}]", endpoint_,
                                          Resolves(endpoint_) ? "" : ": its name is not known on this machine",
                                          ProcessName()));
      }
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
      if (left <= milliseconds(0)) throw Silent();
      WaitReadable(socket_, events_->socket(), left);
    }
  }

 private:
  using Parts = std::array<zmq::message_t, 2>;  // call number, bytes

  static bool Answers(const Parts& parts, std::size_t count, std::uint64_t number) {
    return count == parts.size() && parts[0].size() == sizeof(number) &&
           std::memcmp(parts[0].data(), &number, sizeof(number)) == 0;
  }

  bool SendParts(std::uint64_t number, const Bytes& request, zmq::send_flags flags) {
    SPOTLIGHT_REQUIRE(request.size() <= kLargestRequest, fmt::format("a request of {} bytes", request.size()));
    return socket_.send(zmq::buffer(&number, sizeof(number)), flags | zmq::send_flags::sndmore).has_value() &&
           socket_.send(zmq::buffer(request), flags).has_value();
  }

  CoordinatorLost Silent() const {
    return CoordinatorLost(fmt::format("the coordinator at {} was silent for {:.1f} s [{}]", endpoint_,
                                       static_cast<double>(detection_time_.count()) / 1000, ProcessName()));
  }

  milliseconds detection_time_;
  std::string endpoint_;
  std::uint64_t number_ = kPosted;
  std::optional<Bytes> heard_;
  zmq::context_t context_;
  zmq::socket_t socket_;
  std::optional<ConnectionEvents> events_;
};

}  // namespace

std::unique_ptr<NetworkServer> MakeServer(const std::string& host, int port) {
  return std::make_unique<ZmqServer>(host, port);
}

std::unique_ptr<Client> MakeClient(const std::string& address, milliseconds detection_time, const std::string& name) {
  const std::size_t space = address.find(' ');
  SPOTLIGHT_REQUIRE(space != std::string::npos && address.size() - space == kKeyText, "address '" + address + "'");
  return std::make_unique<ZmqClient>(address.substr(0, space), address.substr(space + 1), detection_time, name);
}

}  // namespace spotlight
