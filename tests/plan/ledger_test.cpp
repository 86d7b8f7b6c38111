#include "plan/ledger.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"

namespace spotlight {
namespace {

CostLedger FilledLedger() {
  CostConfig prices;
  prices.reserved_per_hour = 2;
  prices.spot_per_hour = 0.5;
  prices.currency = "EUR";
  CostLedger ledger(prices);
  ledger.Add(Pool::kReserved, Use::kTraining, 1000);
  ledger.Add(Pool::kReserved, Use::kTraining, 800);
  ledger.Add(Pool::kReserved, Use::kIdle, 1800);
  ledger.Add(Pool::kSpot, Use::kExploration, 7200);
  return ledger;
}

TEST(Ledger, SecondsAndCostAddUp) {
  const CostLedger ledger = FilledLedger();
  EXPECT_DOUBLE_EQ(ledger.Seconds(Pool::kReserved, Use::kTraining), 1800);
  EXPECT_DOUBLE_EQ(ledger.Seconds(Pool::kReserved), 3600);
  EXPECT_DOUBLE_EQ(ledger.Cost(Pool::kReserved, Use::kTraining), 1);
  EXPECT_DOUBLE_EQ(ledger.Cost(Pool::kReserved), 2);
  EXPECT_DOUBLE_EQ(ledger.Cost(Pool::kSpot), 1);
  EXPECT_DOUBLE_EQ(ledger.Cost(), 3);
  EXPECT_DOUBLE_EQ(ledger.CostAllReserved(), 6);
}

TEST(Ledger, TableHasARowAUseAndTotals) {
  const std::string table = FilledLedger().Table();
  EXPECT_THAT(table, testing::ContainsRegex("use +reserved s +spot s +cost EUR +share"));
  EXPECT_THAT(table, testing::ContainsRegex("training +1800.0 +0.0 +1.00000 +33.3%"));
  EXPECT_THAT(table, testing::ContainsRegex("exploration +0.0 +7200.0 +1.00000 +33.3%"));
  EXPECT_THAT(table, testing::ContainsRegex("total +3600.0 +7200.0 +3.00000 +100.0%"));
}

TEST(Ledger, GoodputIsTheShareOfUsefulSteps) {
  CostLedger ledger = FilledLedger();
  EXPECT_EQ(ledger.Goodput(), 1) << "before the first step";
  ledger.AddSteps(15, 0);
  EXPECT_EQ(ledger.Goodput(), 1) << "kept, and not yet reported as done";
  ledger.AddSteps(0, 20);
  EXPECT_EQ(ledger.useful_steps(), 15);
  EXPECT_EQ(ledger.all_steps(), 20);
  EXPECT_DOUBLE_EQ(ledger.Goodput(), 0.75);
  EXPECT_THROW(ledger.AddSteps(-1, 1), InternalError);
  EXPECT_THROW(ledger.AddSteps(1, -1), InternalError);
}

TEST(Ledger, LostTimeIsPricedToo) {
  CostLedger ledger = FilledLedger();
  const double before = ledger.Cost();
  ledger.Add(Pool::kSpot, Use::kLost, 3600);
  EXPECT_DOUBLE_EQ(ledger.Cost() - before, 0.5);
  EXPECT_THAT(ledger.Table(), testing::ContainsRegex("lost +0.0 +3600.0 +0.50000 +14.3%"));
}

TEST(Ledger, NegativeSecondsAreABug) {
  CostLedger ledger = FilledLedger();
  EXPECT_THROW(ledger.Add(Pool::kSpot, Use::kIdle, -1), InternalError);
  EXPECT_THROW(ledger.Add(Pool::kSpot, Use::kIdle, std::numeric_limits<double>::quiet_NaN()), InternalError);
}

}  // namespace
}  // namespace spotlight
