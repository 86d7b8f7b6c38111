#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
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
  owned.release();  // the message owns it from here
  return message;
}

Bytes ToBytes(const zmq::message_t& message) {
  const auto* data = message.data<std::byte>();
  return {data, data + message.size()};
}

// Waits until `socket` has something to read. False: time is up or a signal came.
bool WaitReadable(zmq::socket_t& socket, milliseconds timeout) {
  std::array<zmq::pollitem_t, 1> items = {{{socket.handle(), 0, ZMQ_POLLIN, 0}}};
  try {
    return zmq::poll(items.data(), items.size(), timeout) > 0;
  } catch (const zmq::error_t& error) {
    if (error.num() == EINTR) return false;
    throw;
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
    const bool local = host == "127.0.0.1";
    socket_.bind(local ? "tcp://127.0.0.1:*" : "tcp://0.0.0.0:*");
    const std::string endpoint = socket_.get(zmq::sockopt::last_endpoint);
    address_ = fmt::format("tcp://{}:{} {}", host, endpoint.substr(endpoint.rfind(':') + 1), keys.public_key);
  }

  std::string address() const override { return address_; }

  bool ServeOne(const Handler& handler, milliseconds timeout) override {
    if (!WaitReadable(socket_, timeout)) return false;
    std::vector<zmq::message_t> parts = Receive(socket_);
    if (parts.size() != 3) return false;
    zmq::message_t reply = Adopt(handler(ToBytes(parts[2])));
    // A client that has left meanwhile makes ROUTER drop the reply.
    socket_.send(parts[0], zmq::send_flags::sndmore);
    socket_.send(parts[1], zmq::send_flags::sndmore);
    socket_.send(reply, zmq::send_flags::none);
    return true;
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_;
  std::string address_;
};

class ZmqClient : public Client {
 public:
  ZmqClient(const std::string& endpoint, const std::string& server_key, milliseconds detection_time)
      : detection_time_(detection_time), endpoint_(endpoint), socket_(context_, zmq::socket_type::dealer) {
    const KeyPair keys = MakeKeyPair();
    socket_.set(zmq::sockopt::curve_serverkey, server_key);
    socket_.set(zmq::sockopt::curve_publickey, keys.public_key);
    socket_.set(zmq::sockopt::curve_secretkey, keys.secret_key);
    socket_.set(zmq::sockopt::sndhwm, kHighWater);
    socket_.set(zmq::sockopt::rcvhwm, kHighWater);
    socket_.set(zmq::sockopt::linger, 0);
    socket_.set(zmq::sockopt::sndtimeo, static_cast<int>(detection_time.count()));
    socket_.connect(endpoint);
  }

  Bytes Call(const Bytes& request) override {
    const Clock::time_point deadline = Clock::now() + detection_time_;
    ++number_;
    // Parts are queued together, so the send waits at most once.
    if (!socket_.send(zmq::buffer(&number_, sizeof(number_)), zmq::send_flags::sndmore)) throw Lost();
    if (!socket_.send(zmq::buffer(request), zmq::send_flags::none)) throw Lost();
    while (true) {
      const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
      if (left <= milliseconds(0)) throw Lost();
      if (!WaitReadable(socket_, left)) continue;
      const std::vector<zmq::message_t> parts = Receive(socket_);
      if (parts.size() != 2 || parts[0].size() != sizeof(number_)) continue;
      if (std::memcmp(parts[0].data(), &number_, sizeof(number_)) == 0) return ToBytes(parts[1]);
    }
  }

 private:
  PeerLost Lost() const {
    return PeerLost(fmt::format("the coordinator at {} was silent for {:.1f} s [{}]", endpoint_,
                                static_cast<double>(detection_time_.count()) / 1000, ProcessName()));
  }

  milliseconds detection_time_;
  std::string endpoint_;
  std::uint64_t number_ = 0;
  zmq::context_t context_;
  zmq::socket_t socket_;
};

}  // namespace

std::unique_ptr<NetworkServer> MakeServer(const std::string& host) { return std::make_unique<ZmqServer>(host); }

std::unique_ptr<Client> MakeClient(const std::string& address, milliseconds detection_time) {
  const std::size_t space = address.find(' ');
  SPOTLIGHT_REQUIRE(space != std::string::npos && address.size() - space == kKeyText, "address '" + address + "'");
  return std::make_unique<ZmqClient>(address.substr(0, space), address.substr(space + 1), detection_time);
}

}  // namespace spotlight
