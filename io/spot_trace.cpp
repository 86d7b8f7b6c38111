#include "io/spot_trace.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "io/atomic_file.hpp"
#include "io/json_reading.hpp"
#include "io/missing_file.hpp"

namespace spotlight {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxMilliseconds = 10LL * 366 * 24 * 3600 * 1000;  // ten years
constexpr std::int64_t kMaxNodes = 1'000'000;

std::string_view Stripped(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(Stripped(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

std::optional<std::int64_t> WholeNumber(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Milliseconds since 1970 of "YYYY-MM-DD" and "HH:MM:SS", as if of UTC: only differences are used.
std::optional<std::int64_t> Instant(std::string_view date, std::string_view time) {
  std::array<std::optional<std::int64_t>, 6> numbers;
  const std::vector<std::string_view> day = Split(date, '-'), clock = Split(time, ':');
  if (day.size() != 3 || clock.size() != 3) return std::nullopt;
  for (std::size_t i = 0; i < 3; ++i) {
    numbers[i] = WholeNumber(day[i]);
    numbers[3 + i] = WholeNumber(clock[i]);
  }
  constexpr std::array<std::int64_t, 6> kLowest = {1970, 1, 1, 0, 0, 0}, kHighest = {9999, 12, 31, 23, 59, 60};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (!numbers[i] || *numbers[i] < kLowest[i] || *numbers[i] > kHighest[i]) return std::nullopt;
  }
  const std::chrono::year_month_day date_read{std::chrono::year(static_cast<int>(*numbers[0])),
                                              std::chrono::month(static_cast<unsigned>(*numbers[1])),
                                              std::chrono::day(static_cast<unsigned>(*numbers[2]))};
  if (!date_read.ok()) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(date_read).time_since_epoch().count();
  return (((days * 24 + *numbers[3]) * 60 + *numbers[4]) * 60 + *numbers[5]) * 1000;
}

// One file, line by line.
class TraceReading {
 public:
  explicit TraceReading(const std::string& path) : path_(path) {}

  void Csv(std::string_view line);
  void Counts(std::string_view line);
  void JsonLine(std::string_view line);
  void NextLine() { ++line_; }
  SpotTrace Finish();

 private:
  [[noreturn]] void Fail(std::string_view what) const { throw UserError(fmt::format("{}:{}: {}", path_, line_, what)); }
  void Advance(std::int64_t milliseconds);
  void Change(const std::string& node, bool comes);
  void Record(int node, int change);

  std::string path_;
  int line_ = 0;
  SpotTrace trace_;
  std::optional<std::int64_t> origin_;   // of Counts, milliseconds
  std::int64_t now_ = 0;                 // milliseconds
  std::map<std::string, int> numbers_;   // of nodes, in the order in which they came first
  std::map<std::string, bool> present_;  // nodes
  int nodes_ = 0;
  bool ended_ = false;
};

void TraceReading::Advance(std::int64_t milliseconds) {
  if (milliseconds < 0 || milliseconds > kMaxMilliseconds) {
    Fail(fmt::format("the time {} ms is out of range; from 0 to ten years is allowed", milliseconds));
  }
  if (milliseconds < now_) {
    Fail(fmt::format("the time is {} s before that of the line above; sort the lines by time",
                     static_cast<double>(now_ - milliseconds) / 1000));
  }
  now_ = milliseconds;
}

void TraceReading::Record(int node, int change) {
  nodes_ += change;
  trace_.most_nodes = std::max(trace_.most_nodes, nodes_);
  trace_.events.push_back({static_cast<double>(now_) / 1000, node, change});
}

void TraceReading::Change(const std::string& node, bool comes) {
  if (node.empty()) Fail("a node without a name");
  bool& present = present_.try_emplace(node, false).first->second;
  if (present == comes) {
    Fail(fmt::format("node '{}' is {}; each node is added, then removed", node,
                     comes ? "added, but is there already" : "removed, but is not there"));
  }
  present = comes;
  Record(numbers_.try_emplace(node, static_cast<int>(numbers_.size())).first->second, comes ? 1 : -1);
}

void TraceReading::Csv(std::string_view line) {
  const std::vector<std::string_view> parts = Split(line, ',');
  const std::optional<std::int64_t> time = WholeNumber(parts[0]);
  if (parts.size() != 3 || !time || (parts[1] != "add" && parts[1] != "remove")) {
    Fail(fmt::format("'{}' is not 'milliseconds,add,node' or 'milliseconds,remove,node'", line.substr(0, 60)));
  }
  Advance(*time);
  Change(std::string(parts[2]), parts[1] == "add");
}

void TraceReading::Counts(std::string_view line) {
  const std::vector<std::string_view> parts = Split(line, ',');
  const std::optional<std::int64_t> time = parts.size() == 3 ? Instant(parts[0], parts[1]) : std::nullopt;
  const std::optional<std::int64_t> count = parts.size() == 3 ? WholeNumber(parts[2]) : std::nullopt;
  if (!time || !count) Fail(fmt::format("'{}' is not 'YYYY-MM-DD, HH:MM:SS, nodes'", line.substr(0, 60)));
  if (*count < 0 || *count > kMaxNodes) Fail(fmt::format("{} nodes; from 0 to {} is allowed", *count, kMaxNodes));
  if (!origin_) origin_ = *time;
  if (*time < *origin_ + now_) {
    Fail(fmt::format("the time {} {} is before that of the line above; sort the lines by time", parts[0], parts[1]));
  }
  Advance(*time - *origin_);
  if (*count != nodes_) Record(-1, static_cast<int>(*count) - nodes_);
}

void TraceReading::JsonLine(std::string_view line) {
  if (ended_) Fail("a line after \"DONE\", which ends the trace");
  constexpr std::string_view kForm =
      R"([milliseconds, "add" or "remove" or "DONE", {"nodes": ["node", ...]}] is meant)";
  json event;
  try {
    event = json::parse(line);
  } catch (const json::exception&) {
    Fail(fmt::format("not JSON: {}; {}", line.substr(0, 60), kForm));
  }
  const auto is_event = [&] {
    if (!event.is_array() || event.size() != 3 || !event[0].is_number_integer() || !event[1].is_string()) return false;
    if (!event[2].is_object() || !event[2].contains("nodes") || !event[2]["nodes"].is_array()) return false;
    const json& nodes = event[2]["nodes"];
    return std::all_of(nodes.begin(), nodes.end(), [](const json& node) { return node.is_string(); });
  };
  if (!is_event()) Fail(fmt::format("{}; {}", line.substr(0, 60), kForm));
  const std::string what = event[1].get<std::string>();
  if (what != "add" && what != "remove" && what != "DONE") Fail(fmt::format("the event is \"{}\"; {}", what, kForm));
  Advance(event[0].get<std::int64_t>());
  ended_ = what == "DONE";
  if (ended_) return;
  for (const json& node : event[2]["nodes"]) Change(node.get<std::string>(), what == "add");
}

SpotTrace TraceReading::Finish() {
  if (trace_.events.empty()) throw UserError(path_ + ": no events: the file is empty, or no node ever came");
  trace_.seconds = static_cast<double>(now_) / 1000;
  return std::move(trace_);
}

}  // namespace

SpotTrace ReadSpotTrace(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension != ".csv" && extension != ".txt" && extension != ".jsonl") {
    throw UserError(fmt::format(
        "{}: a spot trace ends in .csv (events of nodes), .txt (counts of nodes) or .jsonl (events in JSON), not {}",
        path, extension.empty() ? "nothing" : "\"" + extension + "\""));
  }
  if (!std::filesystem::is_regular_file(path)) throw UserError(MissingFileMessage(path));
  const std::string bytes = ReadWholeFile(path);
  TraceReading reading(path);
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string_view line = Stripped(std::string_view(bytes).substr(begin, end - begin));
    begin = end + 1;
    reading.NextLine();
    if (line.empty()) continue;
    if (extension == ".csv") {
      reading.Csv(line);
    } else if (extension == ".txt") {
      reading.Counts(line);
    } else {
      reading.JsonLine(line);
    }
  }
  return reading.Finish();
}

}  // namespace spotlight
