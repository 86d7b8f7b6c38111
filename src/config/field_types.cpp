#include "config/field_types.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "config/ini.hpp"

namespace spotlight {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// A number that fills the whole text; false if there is none or it does not fit into T.
template <typename T>
bool ParseNumber(const std::string& text, T& value) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end;
}

// The elements between commas; none if the text is empty.
std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> elements;
  if (Trimmed(text).empty()) return elements;
  std::size_t begin = 0;
  for (std::size_t comma = 0; comma != std::string::npos; begin = comma + 1) {
    comma = text.find(',', begin);
    elements.push_back(Trimmed(text.substr(begin, comma == std::string::npos ? comma : comma - begin)));
  }
  return elements;
}

std::string FormatWeights(const std::vector<WeightedName>& list) {
  std::vector<std::string> elements;
  for (const WeightedName& element : list) elements.push_back(fmt::format("{}:{}", element.name, element.weight));
  return fmt::format("{}", fmt::join(elements, ", "));
}

// "is not ...; did you mean x?" for a name that is not in the set.
std::string NotOneOf(const std::string& name, const std::vector<std::string>& names) {
  const std::string nearest = NearestName(name, names);
  return "is not one of the names" + (nearest.empty() ? nearest : ", did you mean " + nearest + "?");
}

}  // namespace

bool NumberRange::Contains(double value) const {
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

std::string NumberRange::Text() const {
  if (high == kInfinity) return fmt::format("{} {}", low_open ? ">" : ">=", low);
  if (!low_open && !high_open) return fmt::format("{} .. {}", low, high);
  return fmt::format("{} {} x {} {}", low, low_open ? "<" : "<=", high_open ? "<" : "<=", high);
}

NumberRange AtLeast(double low) { return {low, kInfinity}; }
NumberRange Above(double low) { return {low, kInfinity, true}; }
NumberRange Between(double low, double high) { return {low, high}; }
NumberRange BelowOne() { return {0, 1, false, true}; }

Field Flag(const char* key, bool& member, OnResume on_resume, const char* help) {
  return Choice(key, member, {"false", "true"}, on_resume, help);
}

Field Whole(const char* key, int& member, NumberRange range, OnResume on_resume, const char* help, int multiple) {
  std::string allowed = range.Text();
  if (multiple > 1) allowed += fmt::format(", a multiple of {}", multiple);
  const auto set = [&member, range, multiple](const std::string& text) -> std::string {
    int value = 0;
    if (!ParseNumber(text, value)) return "is not a whole number of this size";
    if (!range.Contains(value)) return "is out of range";
    if (value % multiple != 0) return fmt::format("is not a multiple of {}", multiple);
    member = value;
    return "";
  };
  return {key, on_resume, allowed, help, false, set, [&member] { return fmt::format("{}", member); }};
}

Field Whole64(const char* key, std::uint64_t& member, OnResume on_resume, const char* help) {
  const auto set = [&member](const std::string& text) -> std::string {
    std::uint64_t value = 0;
    if (!ParseNumber(text, value)) return "is not a whole number of this size";
    member = value;
    return "";
  };
  const std::string allowed = fmt::format("0 .. {}", std::numeric_limits<std::uint64_t>::max());
  return {key, on_resume, allowed, help, false, set, [&member] { return fmt::format("{}", member); }};
}

Field Real(const char* key, double& member, NumberRange range, OnResume on_resume, const char* help) {
  const auto set = [&member, range](const std::string& text) -> std::string {
    double value = 0;
    if (!ParseNumber(text, value) || !std::isfinite(value)) return "is not a finite number";
    if (!range.Contains(value)) return "is out of range";
    member = value;
    return "";
  };
  return {key, on_resume, range.Text(), help, false, set, [&member] { return fmt::format("{}", member); }};
}

Field Text(const char* key, std::string& member, OnResume on_resume, const char* help) {
  const auto set = [&member](const std::string& text) -> std::string {
    if (text.find_first_of("\r\n") != std::string::npos) return "has more than one line";
    member = text;
    return "";
  };
  return {key, on_resume, "", help, false, set, [&member] { return member; }};
}

Field InputPath(const char* key, std::string& member, const char* help) {
  Field field = Text(key, member, OnResume::kMayChange, help);
  field.is_path = true;
  return field;
}

Field Duration(const char* key, std::string& member, OnResume on_resume, const char* help) {
  const auto set = [&member](const std::string& text) -> std::string {
    if (!text.empty() && ParseDuration(text) < 0) return "is not a time";
    member = text;
    return "";
  };
  return {key, on_resume, "hh:mm:ss", help, false, set, [&member] { return member; }};
}

Field NameList(const char* key, std::vector<std::string>& member, std::vector<std::string> names, OnResume on_resume,
               const char* help) {
  std::string allowed = fmt::format("list of {}", fmt::join(names, ", "));
  const auto set = [&member, names = std::move(names)](const std::string& text) -> std::string {
    const std::vector<std::string> list = SplitList(text);
    for (auto name = list.begin(); name != list.end(); ++name) {
      if (std::find(names.begin(), names.end(), *name) == names.end()) {
        return fmt::format("holds '{}', which {}", *name, NotOneOf(*name, names));
      }
      if (std::find(list.begin(), name, *name) != name) return fmt::format("holds {} twice", *name);
    }
    member = list;
    return "";
  };
  return {key,
          on_resume,
          std::move(allowed),
          help,
          false,
          set,
          [&member] { return fmt::format("{}", fmt::join(member, ", ")); }};
}

Field WeightList(const char* key, std::vector<WeightedName>& member, NumberRange range, OnResume on_resume,
                 const char* help) {
  const auto set = [&member, range](const std::string& text) -> std::string {
    std::vector<WeightedName> list;
    std::set<std::string> names;
    for (const std::string& element : SplitList(text)) {
      const std::size_t colon = element.rfind(':');  // the last: a name may hold one
      WeightedName entry;
      if (colon == std::string::npos || colon == 0 || !ParseNumber(Trimmed(element.substr(colon + 1)), entry.weight)) {
        return fmt::format("holds '{}', which is not of the form name:weight", element);
      }
      entry.name = Trimmed(element.substr(0, colon));
      if (!range.Contains(entry.weight)) return fmt::format("holds '{}', whose weight is out of range", element);
      if (!names.insert(entry.name).second) return fmt::format("holds {} twice", entry.name);
      list.push_back(entry);
    }
    member = list;
    return "";
  };
  return {key, on_resume, fmt::format("list of name:weight, weight {}", range.Text()), help, false, set, [&member] {
            return FormatWeights(member);
          }};
}

Field NumberList(const char* key, std::vector<double>& member, std::size_t count, OnResume on_resume,
                 const char* help) {
  const auto set = [&member, count](const std::string& text) -> std::string {
    std::vector<double> list;
    for (const std::string& element : SplitList(text)) {
      double value = 0;
      if (!ParseNumber(element, value) || !std::isfinite(value)) {
        return fmt::format("holds '{}', which is not a finite number", element);
      }
      list.push_back(value);
    }
    if (list.size() != count) return fmt::format("has {} numbers", list.size());
    member = list;
    return "";
  };
  return {key, on_resume, fmt::format("list of {} numbers", count), help, false, set, [&member] {
            return fmt::format("{}", fmt::join(member, ", "));
          }};
}

Field IndexedChoice(const char* key, std::vector<std::string> names, std::function<std::size_t()> get_index,
                    std::function<void(std::size_t)> set_index, OnResume on_resume, const char* help) {
  std::string allowed = fmt::format("{}", fmt::join(names, " | "));
  const auto set = [names, set_index = std::move(set_index)](const std::string& text) -> std::string {
    const auto name = std::find(names.begin(), names.end(), text);
    if (name == names.end()) return NotOneOf(text, names);
    set_index(static_cast<std::size_t>(name - names.begin()));
    return "";
  };
  const auto get = [names, get_index = std::move(get_index)] { return names.at(get_index()); };
  return {key, on_resume, std::move(allowed), help, false, set, get};
}

std::int64_t ParseDuration(const std::string& text) {
  const std::size_t first = text.find(':');
  const std::size_t second = first == std::string::npos ? first : text.find(':', first + 1);
  if (second == std::string::npos) return -1;
  std::uint32_t hours = 0;
  std::uint32_t minutes = 0;
  std::uint32_t seconds = 0;
  if (!ParseNumber(text.substr(0, first), hours) || !ParseNumber(text.substr(first + 1, second - first - 1), minutes) ||
      !ParseNumber(text.substr(second + 1), seconds) || minutes > 59 || seconds > 59) {
    return -1;
  }
  return std::int64_t{hours} * 3600 + std::int64_t{minutes} * 60 + seconds;
}

std::int64_t RunConfig::TimeLimitSeconds() const { return time_limit.empty() ? 0 : ParseDuration(time_limit); }

double LoraConfig::Scale() const { return alpha == 0 ? 1 : alpha / rank; }

}  // namespace spotlight
