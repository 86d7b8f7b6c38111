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
    if (silent_) return Encode(NoWeights{}, kRun);
    return Encode(PieceOf(fetch, values_), kRun);
  }

  // A worker that calls before_piece(number of the piece) whenever it asks the coordinator for one.
  std::size_t Fetch(WeightExchange& exchange, std::span<float> out) {
    const std::unique_ptr<Client> client = MakeClient(server_->address(), std::chrono::seconds(20));
    const MessageCall call = [&](const Message& message) { return Decode(client->Call(Encode(message, kRun)), kRun); };
    return exchange.Fetch(call, kVersion, false, out);
  }

  std::vector<float> values_ = std::vector<float>(kPiece * kPieces - 7);
  WeightPieces pieces_;
  HolderList holders_;
  std::atomic<std::size_t> sent_ = 0;  // pieces
  std::atomic<bool> silent_ = false;   // has none any more
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
  silent_ = true;
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

TEST_F(WeightExchangeTest, AFailedFetchServesNothing) {
  WeightExchange first("127.0.0.1", kRun, 1);
  std::vector<float> other(3);
  EXPECT_THROW(Fetch(first, other), MessageError);
  silent_ = true;
  WeightExchange second("127.0.0.1", kRun, 2);
  std::vector<float> b(values_.size());
  EXPECT_THROW(Fetch(second, b), WeightsGone);
}

}  // namespace
}  // namespace spotlight
