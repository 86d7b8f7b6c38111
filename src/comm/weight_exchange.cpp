#include "comm/weight_exchange.hpp"

#include <pthread.h>

#include <chrono>
#include <csignal>
#include <utility>
#include <variant>

namespace spotlight {
namespace {

// That a holder may take for a piece: 16 MiB over a link of 4 MB/s.
constexpr std::chrono::milliseconds kHolderLimit = std::chrono::seconds(4);
constexpr std::chrono::milliseconds kBetweenLooks{50};  // at whether the thread is to end

}  // namespace

WeightExchange::WeightExchange(std::string host, std::uint64_t run_id, std::uint32_t rank)
    : host_(std::move(host)), run_id_(run_id), rank_(rank) {}

WeightExchange::~WeightExchange() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

// The thread takes no signals: they are meant for the one that computes.
void WeightExchange::Open() {
  if (server_ != nullptr) return;
  server_ = MakeServer(host_);
  address_ = server_->address();
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { Serve(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void WeightExchange::Serve() {
  const Handler handler = [this](const Bytes& request) { return Answer(request); };
  while (true) {
    server_->ServeOne(handler, kBetweenLooks);
    server_->TakeLost();
    const std::lock_guard lock(mutex_);
    if (ends_) return;
  }
}

Bytes WeightExchange::Answer(const Bytes& request) {
  Message reply = NoWeights{};
  try {
    const Message message = Decode(request, run_id_);
    const auto* fetch = std::get_if<FetchWeights>(&message);
    const std::lock_guard lock(mutex_);
    if (fetch != nullptr && offer_ && offer_->Has(*fetch)) reply = PieceOf(*fetch, offer_->values);
  } catch (const MessageError&) {  // of another build or run
  }
  return Encode(reply, run_id_);
}

bool WeightExchange::Offer::Has(const FetchWeights& fetch) const {
  if (fetch.version != version || fetch.ema != ema || piece == 0) return false;
  const std::uint64_t number = fetch.offset / piece;
  return fetch.offset % piece == 0 && fetch.count <= piece && number < have.size() && have[number];
}

Message WeightExchange::CallHolder(const std::string& address, const Message& message) {
  std::unique_ptr<Client>& client = clients_[address];
  if (client == nullptr) client = MakeClient(address, kHolderLimit);
  return Decode(client->Call(Encode(message, run_id_)), run_id_);
}

std::size_t WeightExchange::Fetch(const MessageCall& coordinator, std::uint64_t version, bool ema,
                                  std::span<float> out) {
  Open();
  {
    const std::lock_guard lock(mutex_);
    offer_.emplace(Offer{.version = version, .ema = ema, .values = out, .have = {}});
  }
  const auto call = [this](const std::string& address, const Message& message) { return CallHolder(address, message); };
  const auto have = [this](const WeightPieces& pieces, std::size_t piece) {
    const std::lock_guard lock(mutex_);
    offer_->piece = pieces.piece;
    offer_->have.resize(pieces.checksums.size());
    offer_->have[piece] = true;
  };
  try {
    const std::size_t from_coordinator = FetchInPieces(coordinator, {rank_, version, ema, address_}, out, {call, have});
    clients_.clear();
    return from_coordinator;
  } catch (...) {
    clients_.clear();
    Withdraw();
    throw;
  }
}

void WeightExchange::Withdraw() {
  const std::lock_guard lock(mutex_);
  offer_.reset();
}

}  // namespace spotlight
