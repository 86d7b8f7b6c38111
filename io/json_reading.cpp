#include "io/json_reading.hpp"

#include <filesystem>
#include <vector>

#include "io/atomic_file.hpp"
#include "io/missing_file.hpp"

namespace spotlight {

using nlohmann::json;

namespace {

constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxReason = 200;  // the parser repeats the token it fails on, however long

bool IsNestedTooDeep(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      quoted = !quoted;
    } else if (quoted) {
      if (c == '\\') ++i;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

json ParseJsonObject(std::string_view text, const std::string& place) {
  if (IsNestedTooDeep(text)) {
    throw UserError(fmt::format("{}: nested deeper than {} levels; no file of this kind is", place, kMaxDepth));
  }
  json parsed;
  try {
    parsed = json::parse(text);
  } catch (const json::exception& error) {
    throw UserError(fmt::format("{}: not JSON ({})", place, std::string_view(error.what()).substr(0, kMaxReason)));
  }
  if (!parsed.is_object()) {
    throw UserError(place + ": holds " + Brief(parsed) + ", where a JSON object {...} is meant");
  }
  return parsed;
}

json ReadJsonFile(const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) throw UserError(MissingFileMessage(path));
  return ParseJsonObject(ReadWholeFile(path), path);
}

int IntOr(const json& object, const std::string& place, const char* key, int fallback, int low, int high) {
  const auto found = object.find(key);
  if (found == object.end()) return fallback;
  const bool fits = found->is_number_integer() &&
                    (found->is_number_unsigned() ? found->get<std::uint64_t>() <= static_cast<std::uint64_t>(high)
                                                 : found->get<std::int64_t>() <= high) &&
                    found->get<std::int64_t>() >= low;
  if (!fits) {
    throw UserError(
        fmt::format("{}: \"{}\" is {}; a whole number from {} to {} is allowed", place, key, Brief(*found), low, high));
  }
  return found->get<int>();
}

double NumberOr(const json& object, const std::string& place, const char* key, double fallback) {
  const auto found = object.find(key);
  if (found == object.end()) return fallback;
  if (!found->is_number()) {
    throw UserError(fmt::format("{}: \"{}\" is {}; a number is meant", place, key, Brief(*found)));
  }
  return found->get<double>();
}

bool BoolOr(const json& object, const std::string& place, const char* key, bool fallback) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return fallback;
  if (!found->is_boolean()) {
    throw UserError(fmt::format("{}: \"{}\" is {}; true or false is meant", place, key, Brief(*found)));
  }
  return found->get<bool>();
}

std::string Brief(const json& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

}  // namespace spotlight
