#include "comm/weight_exchange.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

namespace spotlight {
namespace {

constexpr std::uint64_t kRun = 0x77;
constexpr std::uint64_t kVersion = 3;
constexpr std::uint64_t kPiece = 1000;
constexpr std::size_t kPieces = 64;

// A coordinator with one version, over the network as in a run.
class WeightExchangeTest : public testing::Test {
 protected:
  WeightExchangeTest() {
    std::iota(values_.begin(), values_.end(), 0.5F);
    pieces_ = MapOf(kVersion, false, values_, kPiece);
    thread_ = std::thread([this] {
      while (!ends_)
        server_->ServeOne([this](const Bytes& bytes) { return Answer(bytes); }, std::chrono::milliseconds(20));
    });
  }
  ~WeightExchangeTest() override {
    ends_ = true;
    thread_.join();
  }

  Bytes Answer(const Bytes& bytes) {
    const Message message = Decode(bytes, kRun);
    if (const auto* find = std::get_if<FindWeights>(&message)) {
      WeightPieces reply = pieces_;
      reply.holders = holders_.After(find->rank);
      holders_.Add(find->rank, find->address);
      return Encode(reply, kRun);
    }
    const auto& fetch = std::get<FetchWeights>(message);
    ++sent_;
    if (sent_ > gone_after_) return Encode(NoWeights{}, kRun);
    return Encode(PieceOf(fetch, values_), kRun);
  }

  std::size_t Fetch(WeightExchange& exchange, std::span<float> out) {
    const std::unique_ptr<Client> client = MakeClient(server_->address(), std::chrono::seconds(20));
    const MessageCall call = [&](const Message& message) { return Decode(client->Call(Encode(message, kRun)), kRun); };
    return exchange.Fetch(call, kVersion, false, out);
  }

  // Whether the worker that called last serves these values.
  bool Serves(const FetchWeights& fetch) {
    const std::unique_ptr<Client> client = MakeClient(holders_.After(0).back(), std::chrono::seconds(20));
    const Message reply = Decode(client->Call(Encode(fetch, kRun)), kRun);
    return std::holds_alternative<Weights>(reply);
  }

  std::vector<float> values_ = std::vector<float>(kPiece * kPieces - 7);
  WeightPieces pieces_;
  HolderList holders_;
  std::atomic<std::size_t> sent_ = 0;                // pieces
  std::atomic<std::size_t> gone_after_ = 1'000'000;  // has none after so many
  std::atomic<bool> ends_ = false;
  std::unique_ptr<NetworkServer> server_ = MakeServer("127.0.0.1");
  std::thread thread_;
};

TEST_F(WeightExchangeTest, ASecondWorkerTakesAllFromTheFirst) {
  WeightExchange first("127.0.0.1", kRun, 1), second("127.0.0.1", kRun, 2);
  std::vector<float> a(values_.size()), b(values_.size());
  EXPECT_EQ(Fetch(first, a), kPieces);
  EXPECT_EQ(Fetch(second, b), 0U);
  EXPECT_EQ(a, values_);
  EXPECT_EQ(b, values_);
  // With the coordinator's copy gone, a third one still gets it.
  gone_after_ = 0;
  WeightExchange third("127.0.0.1", kRun, 3);
  std::vector<float> c(values_.size());
  EXPECT_EQ(Fetch(third, c), 0U);
  EXPECT_EQ(c, values_);
}

TEST_F(WeightExchangeTest, ManyColdWorkersShareTheCoordinatorsLine) {
  constexpr std::uint32_t kWorkers = 6;
  std::vector<std::thread> workers;
  std::atomic<int> right = 0;
  std::vector<std::unique_ptr<WeightExchange>> exchanges;
  for (std::uint32_t rank = 1; rank <= kWorkers; ++rank) {
    exchanges.push_back(std::make_unique<WeightExchange>("127.0.0.1", kRun, rank));
  }
  std::vector<std::vector<float>> out(kWorkers, std::vector<float>(values_.size()));
  for (std::uint32_t i = 0; i < kWorkers; ++i) {
    workers.emplace_back([&, i] {
      Fetch(*exchanges[i], out[i]);
      if (out[i] == values_) ++right;
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(right, static_cast<int>(kWorkers));
  EXPECT_LE(sent_, 3 * kPieces) << "alone, each would have asked for all";
}

TEST_F(WeightExchangeTest, AHolderThatIsKilledOrHasWithdrawnCostsNothingButTime) {
  auto first = std::make_unique<WeightExchange>("127.0.0.1", kRun, 1);
  WeightExchange second("127.0.0.1", kRun, 2), third("127.0.0.1", kRun, 3);
  std::vector<float> a(values_.size()), b(values_.size()), c(values_.size());
  Fetch(*first, a);
  Fetch(second, b);
  first.reset();
  a.clear();
  second.Withdraw();
  std::fill(b.begin(), b.end(), 0.0F);
  EXPECT_EQ(Fetch(third, c), kPieces);
  EXPECT_EQ(c, values_);
}

TEST_F(WeightExchangeTest, ServesWholePiecesOfItsVersionUntilItWithdraws) {
  WeightExchange exchange("127.0.0.1", kRun, 1);
  std::vector<float> out(values_.size());
  Fetch(exchange, out);
  EXPECT_TRUE(Serves({kVersion, false, kPiece, kPiece}));
  EXPECT_FALSE(Serves({kVersion + 1, false, kPiece, kPiece}));
  EXPECT_FALSE(Serves({kVersion, true, kPiece, kPiece}));
  EXPECT_FALSE(Serves({kVersion, false, kPiece + 1, kPiece}));
  EXPECT_FALSE(Serves({kVersion, false, kPiece, kPiece + 1}));
  EXPECT_FALSE(Serves({kVersion, false, kPiece * kPieces, kPiece}));
  exchange.Withdraw();
  EXPECT_FALSE(Serves({kVersion, false, kPiece, kPiece}));
}

TEST_F(WeightExchangeTest, AFailedFetchServesNothing) {
  WeightExchange exchange("127.0.0.1", kRun, 1);
  std::vector<float> out(values_.size());
  gone_after_ = 10;
  EXPECT_THROW(Fetch(exchange, out), WeightsGone);
  for (std::uint64_t piece = 0; piece < kPieces; ++piece) {
    EXPECT_FALSE(Serves({kVersion, false, piece * kPiece, kPiece})) << piece;
  }
}

}  // namespace
}  // namespace spotlight
