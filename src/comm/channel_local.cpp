#include <utility>

#include "comm/channel.hpp"

namespace spotlight {
namespace {

class LocalClient : public Client {
 public:
  explicit LocalClient(const Handler& handler) : handler_(handler) {}
  Bytes Call(const Bytes& request) override {
    called_ = true;
    return handler_(request);
  }
  bool Post(const Bytes& request) override {
    Call(request);
    return true;
  }
  bool called() const { return called_; }

 private:
  const Handler& handler_;
  bool called_ = false;
};

class LocalServer : public Server {
 public:
  explicit LocalServer(std::function<void(Client&)> turn) : turn_(std::move(turn)) {}
  bool ServeOne(const Handler& handler, std::chrono::milliseconds) override {
    LocalClient client(handler);
    turn_(client);
    return client.called();
  }

 private:
  std::function<void(Client&)> turn_;
};

}  // namespace

std::unique_ptr<Server> MakeLocalServer(std::function<void(Client&)> turn) {
  return std::make_unique<LocalServer>(std::move(turn));
}

}  // namespace spotlight
