#include "io/spot_trace.hpp"

#include <algorithm>
#include <vector>

#include "base/error.hpp"
#include "io_test.hpp"

namespace spotlight {
namespace {

const std::string kTraces = std::string(SPOTLIGHT_TEST_DATA_DIR) + "/traces/";

// Nodes after all events up to `seconds`.
int NodesAt(const SpotTrace& trace, double seconds) {
  int nodes = 0;
  for (const TraceEvent& event : trace.events) nodes += event.seconds <= seconds ? event.change : 0;
  return nodes;
}

class SpotTraceTest : public IoTest {
 protected:
  // `text` as a file with this ending is refused with "file:line: " and these parts.
  void ExpectRefused(const std::string& ending, const std::string& text, int line,
                     std::initializer_list<std::string> parts) {
    const std::string path = WriteFile("bad" + ending, text);
    ExpectError<UserError>([&] { ReadSpotTrace(path); }, {path + ":" + std::to_string(line) + ": "});
    ExpectError<UserError>([&] { ReadSpotTrace(path); }, parts);
  }
};

TEST_F(SpotTraceTest, ReadsEventsOfNodes) {
  const SpotTrace trace = ReadSpotTrace(kTraces + "bamboo_aws_p3.csv");
  EXPECT_EQ(NodesAt(trace, 0), 18);
  EXPECT_EQ(NodesAt(trace, 1500), 32);
  EXPECT_EQ(NodesAt(trace, 2040), 28) << "four nodes at once";
  EXPECT_EQ(trace.most_nodes, 32);
  EXPECT_EQ(trace.seconds, 3660);
  EXPECT_EQ(trace.events.front().node, 0);
  // The first to go is the 19th that came.
  const auto gone = std::find_if(trace.events.begin(), trace.events.end(), [](const auto& e) { return e.change < 0; });
  EXPECT_EQ(gone->node, 18);
  EXPECT_EQ(gone->seconds, 2040);
}

TEST_F(SpotTraceTest, ReadsCounts) {
  const SpotTrace trace = ReadSpotTrace(kTraces + "bamboo_gcp_a100.txt");
  ASSERT_GE(trace.events.size(), 4U);
  EXPECT_EQ(trace.events[0].seconds, 0);
  EXPECT_EQ(trace.events[0].change, 59);
  EXPECT_EQ(trace.events[1].change, -6);
  EXPECT_EQ(trace.events[1].seconds, 21 * 60 + 5) << "18:55:40 to 19:16:45";
  EXPECT_EQ(trace.events[2].change, -36) << "the mass loss";
  EXPECT_EQ(trace.events[2].node, -1);
  EXPECT_EQ(trace.most_nodes, 64);
  EXPECT_EQ(NodesAt(trace, trace.seconds), 64);
}

TEST_F(SpotTraceTest, CountsGoOverMidnightAndTheEndOfAMonth) {
  const SpotTrace trace = ReadSpotTrace(WriteFile("t.txt", "2024-02-29, 23:59:00, 4\r\n\n2024-03-01, 00:01:30, 2\n"));
  ASSERT_EQ(trace.events.size(), 2U);
  EXPECT_EQ(trace.events[1].seconds, 150);
  EXPECT_EQ(trace.events[1].change, -2);
}

TEST_F(SpotTraceTest, ReadsJsonLines) {
  const SpotTrace trace = ReadSpotTrace(kTraces + "spotserve_aws_g4dn.jsonl");
  EXPECT_EQ(NodesAt(trace, 0), 9);
  EXPECT_EQ(NodesAt(trace, 180), 6);
  EXPECT_EQ(NodesAt(trace, 720), 10);
  EXPECT_EQ(trace.seconds, 720) << "DONE";
  EXPECT_EQ(trace.events[9].node, 4);
}

TEST_F(SpotTraceTest, ANodeMayComeBack) {
  const SpotTrace trace = ReadSpotTrace(WriteFile("t.csv", "0,add,a\n5,remove,a\n7,add,a\n"));
  ASSERT_EQ(trace.events.size(), 3U);
  EXPECT_EQ(trace.events[2].node, 0);
  EXPECT_EQ(trace.events[2].seconds, 0.007);
}

TEST_F(SpotTraceTest, WrongLinesAreNamed) {
  ExpectRefused(".csv", "0,add,a\nadd,5,b\n", 2, {"'add,5,b'", "milliseconds,add,node"});
  ExpectRefused(".csv", "0,add\n", 1, {"'0,add'"});
  ExpectRefused(".csv", "0,add,a,b\n", 1, {"'0,add,a,b'"});
  ExpectRefused(".csv", "0,put,a\n", 1, {"'0,put,a'"});
  ExpectRefused(".csv", "0.5,add,a\n", 1, {"'0.5,add,a'"});
  ExpectRefused(".csv", "0,add,\n", 1, {"a node without a name"});
  ExpectRefused(".txt", "2021-12-11, 11:11:30, 5\n2021-13-11, 11:11:30, 5\n", 2, {"'2021-13-11, 11:11:30, 5'", "YYYY"});
  ExpectRefused(".txt", "2021-02-30, 11:11:30, 5\n", 1, {"2021-02-30"});
  ExpectRefused(".txt", "2021-12-11, 24:11:30, 5\n", 1, {"24:11:30"});
  ExpectRefused(".txt", "2021-12-11, 11:11:30, five\n", 1, {"five"});
  ExpectRefused(".txt", "2021-12-11, 11:11:30, -5\n", 1, {"-5 nodes; from 0"});
  ExpectRefused(".txt", "2021-12-11, 11:11:30\n", 1, {"nodes'"});
  ExpectRefused(".jsonl", "[0, \"add\", {\"nodes\": [\"a\"]}]\n[0, \"add\"\n", 2,
                {"not JSON: [0, \"add\"", "is meant"});
  ExpectRefused(".jsonl", "[0, \"put\", {\"nodes\": [\"a\"]}]\n", 1, {"the event is \"put\"", "\"remove\""});
  ExpectRefused(".jsonl", "[0, \"add\", {\"nodes\": [7]}]\n", 1, {"[7]", "is meant"});
  ExpectRefused(".jsonl", "{\"time\": 0}\n", 1, {"{\"time\": 0}"});
  ExpectRefused(".jsonl", std::string(100000, '['), 1, {"not JSON"});
  ExpectRefused(".jsonl", "[0, \"DONE\", {\"nodes\": []}]\n[1, \"add\", {\"nodes\": []}]\n", 2, {"after \"DONE\""});
}

// L2 of the fault scenarios.
TEST_F(SpotTraceTest, TimesInThePastOrOutOfOrderAreNamed) {
  ExpectRefused(".csv", "-1,add,a\n", 1, {"the time -1 ms is out of range; from 0"});
  ExpectRefused(".csv", "0,add,a\n99999999999999,add,b\n", 2, {"99999999999999 ms is out of range"});
  ExpectRefused(".csv", "0,add,a\n9000,add,b\n\n7500,add,c\n", 4, {"1.5 s before that of the line above; sort"});
  ExpectRefused(".txt", "2021-12-11, 11:11:30, 5\n2021-12-11, 11:11:29, 4\n", 2,
                {"2021-12-11 11:11:29 is before that of the line above; sort"});
  ExpectRefused(".jsonl", "[9, \"add\", {\"nodes\": [\"a\"]}]\n[8, \"add\", {\"nodes\": [\"b\"]}]\n", 2, {"sort"});
}

TEST_F(SpotTraceTest, NodesThatComeTwiceOrGoUnseenAreNamed) {
  ExpectRefused(".csv", "0,add,a\n1,add,a\n", 2, {"node 'a' is added, but is there already"});
  ExpectRefused(".csv", "0,add,a\n1,remove,b\n", 2, {"node 'b' is removed, but is not there"});
}

TEST_F(SpotTraceTest, WrongFilesAreNamed) {
  ExpectError<UserError>([&] { ReadSpotTrace(WriteFile("t.json", "[]")); }, {"t.json", ".jsonl", "\".json\""});
  ExpectError<UserError>([&] { ReadSpotTrace(WriteFile("e.csv", "\n")); }, {"e.csv: no events"});
  ExpectError<UserError>([&] { ReadSpotTrace(WriteFile("n.txt", "2021-12-11, 11:11:30, 0\n")); }, {"n.txt: no events"});
  ExpectError<UserError>([&] { ReadSpotTrace(Path("none.csv")); }, {"none.csv"});
}

}  // namespace
}  // namespace spotlight
