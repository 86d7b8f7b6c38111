#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <zmq.hpp>

#include "base/error.hpp"
#include "comm/channel.hpp"

namespace spotlight {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kHighWater = 64;        // messages; a client has one in flight
constexpr std::size_t kKeyText = 41;  // 40 characters of Z85 and a 0

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

// All parts of one message, which ZeroMQ delivers whole or not at all.
std::vector<zmq::message_t> Receive(zmq::socket_t& socket) {
  std::vector<zmq::message_t> parts;
  do {
    zmq::message_t part;
    if (!socket.recv(part, zmq::recv_flags::dontwait)) return {};
    parts.push_back(std::move(part));
  } while (parts.back().more());
  return parts;
}

// What happens to the connections of one socket.
class ConnectionEvents {
 public:
  struct Event {
    int kind = 0;        // ZMQ_EVENT_HANDSHAKE_SUCCEEDED or ZMQ_EVENT_DISCONNECTED
    int descriptor = 0;  // of the connection
  };

  ConnectionEvents(zmq::context_t& context, zmq::socket_t& watched) : socket_(context, zmq::socket_type::pair) {
    const char* const kPlace = "inproc://connections";
    const int code =
        zmq_socket_monitor(watched.handle(), kPlace, ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED);
    SPOTLIGHT_REQUIRE(code == 0, "ZeroMQ watches no connections");
    socket_.connect(kPlace);
    socket_.set(zmq::sockopt::linger, 0);
  }

  zmq::socket_t& socket() { return socket_; }

  // The next one, without waiting. A message of ZeroMQ's: kind u16 and descriptor u32, then the endpoint.
  std::optional<Event> Next() {
    const std::vector<zmq::message_t> parts = Receive(socket_);
    if (parts.empty() || parts[0].size() != sizeof(std::uint16_t) + sizeof(std::uint32_t)) return std::nullopt;
    std::uint16_t kind = 0;
    std::uint32_t value = 0;
    std::memcpy(&kind, parts[0].data(), sizeof(kind));
    std::memcpy(&value, parts[0].data<char>() + sizeof(kind), sizeof(value));
    return Event{kind, static_cast<int>(value)};
  }

 private:
  zmq::socket_t socket_;
};

void SetHeartbeat(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::heartbeat_ivl, 1000);
  socket.set(zmq::sockopt::heartbeat_timeout, static_cast<int>(kSilenceLimit.count()));
}

// Parts of a request and its reply, after the client's identity, which only the ROUTER sees: call number, bytes.
class ZmqServer : public NetworkServer {
 public:
  explicit ZmqServer(const std::string& host) : socket_(context_, zmq::socket_type::router) {
    const KeyPair keys = MakeKeyPair();
    socket_.set(zmq::sockopt::curve_server, true);
    socket_.set(zmq::sockopt::curve_secretkey, keys.secret_key);
    socket_.set(zmq::sockopt::sndhwm, kHighWater);
    socket_.set(zmq::sockopt::rcvhwm, kHighWater);
    socket_.set(zmq::sockopt::linger, 1000);  // the last replies are still on their way at the end
    socket_.set(zmq::sockopt::sndtimeo, 0);   // never wait for a client
    SetHeartbeat(socket_);
    events_.emplace(context_, socket_);
    const bool local = host == "127.0.0.1";
    socket_.bind(local ? "tcp://127.0.0.1:*" : "tcp://0.0.0.0:*");
    const std::string endpoint = socket_.get(zmq::sockopt::last_endpoint);
    address_ = fmt::format("tcp://{}:{} {}", host, endpoint.substr(endpoint.rfind(':') + 1), keys.public_key);
  }

  std::string address() const override { return address_; }

  bool ServeOne(const Handler& handler, milliseconds timeout) override {
    const Clock::time_point deadline = Clock::now() + timeout;
    std::vector<zmq::message_t> parts;
    while (parts.empty()) {
      // Events first, then the requests that were there before them: nobody counts as lost with a request unserved.
      const bool ended = NoteEvents();
      parts = Receive(socket_);
      if (!parts.empty()) break;
      lost_.insert(lost_.end(), ended_.begin(), ended_.end());
      ended_.clear();
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
      if (ended || left <= milliseconds(0)) return false;
      WaitReadable(socket_, events_->socket(), left);
    }
    if (parts.size() != 3) return false;
    // By the descriptor a request came through, the name of an ended connection is known.
    connected_[parts[2].get(ZMQ_SRCFD)] = parts[0].to_string();
    zmq::message_t reply = Adopt(handler(ToBytes(parts[2])));
    // A client that has left meanwhile makes ROUTER drop the reply.
    socket_.send(parts[0], zmq::send_flags::sndmore);
    socket_.send(parts[1], zmq::send_flags::sndmore);
    socket_.send(reply, zmq::send_flags::none);
    return true;
  }

  std::vector<std::string> TakeLost() override { return std::exchange(lost_, {}); }

 private:
  // True: a connection has ended.
  bool NoteEvents() {
    while (const auto event = events_->Next()) {
      if (event->kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
        connected_.try_emplace(event->descriptor);
      } else if (const auto found = connected_.find(event->descriptor); found != connected_.end()) {
        // Who has not proved to know the key (a port scanner) is not in the map.
        ended_.push_back(found->second);
        connected_.erase(found);
      }
    }
    return !ended_.empty();
  }

  zmq::context_t context_;
  zmq::socket_t socket_;
  std::optional<ConnectionEvents> events_;
  std::map<int, std::string> connected_;  // by descriptor; "": has not called yet
  std::vector<std::string> ended_;        // requests of theirs may still wait
  std::vector<std::string> lost_;
  std::string address_;
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

  // The reply has a number that no later call waits for.
  bool Post(const Bytes& request) override {
    ++number_;
    // All parts or none: ZeroMQ counts a message when its last part is sent.
    if (!socket_.send(zmq::buffer(&number_, sizeof(number_)), zmq::send_flags::sndmore | zmq::send_flags::dontwait)) {
      return false;
    }
    return socket_.send(zmq::buffer(request), zmq::send_flags::dontwait).has_value();
  }

  Bytes Call(const Bytes& request) override {
    const Clock::time_point deadline = Clock::now() + detection_time_;
    ++number_;
    // Parts are queued together, so the send waits at most once.
    if (!socket_.send(zmq::buffer(&number_, sizeof(number_)), zmq::send_flags::sndmore)) throw Silent();
    if (!socket_.send(zmq::buffer(request), zmq::send_flags::none)) throw Silent();
    bool ended = false;
    while (true) {
      // After the event of the end comes a last look for a reply that was sent before it.
      while (const auto event = events_->Next()) ended = ended || event->kind == ZMQ_EVENT_DISCONNECTED;
      const std::vector<zmq::message_t> parts = Receive(socket_);
      if (parts.size() == 2 && parts[0].size() == sizeof(number_) &&
          std::memcmp(parts[0].data(), &number_, sizeof(number_)) == 0) {
        return ToBytes(parts[1]);
      }
      if (!parts.empty()) continue;
      if (ended) {
        throw CoordinatorLost(
            fmt::format("the connection to the coordinator at {} has ended [{}]", endpoint_, ProcessName()));
      }
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
      if (left <= milliseconds(0)) throw Silent();
      WaitReadable(socket_, events_->socket(), left);
    }
  }

 private:
  CoordinatorLost Silent() const {
    return CoordinatorLost(fmt::format("the coordinator at {} was silent for {:.1f} s [{}]", endpoint_,
                                       static_cast<double>(detection_time_.count()) / 1000, ProcessName()));
  }

  milliseconds detection_time_;
  std::string endpoint_;
  std::uint64_t number_ = 0;
  zmq::context_t context_;
  zmq::socket_t socket_;
  std::optional<ConnectionEvents> events_;
};

}  // namespace

std::unique_ptr<NetworkServer> MakeServer(const std::string& host) { return std::make_unique<ZmqServer>(host); }

std::unique_ptr<Client> MakeClient(const std::string& address, milliseconds detection_time, const std::string& name) {
  const std::size_t space = address.find(' ');
  SPOTLIGHT_REQUIRE(space != std::string::npos && address.size() - space == kKeyText, "address '" + address + "'");
  return std::make_unique<ZmqClient>(address.substr(0, space), address.substr(space + 1), detection_time, name);
}

}  // namespace spotlight
