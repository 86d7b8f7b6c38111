// Reading JSON with messages that name the file, the key, the value and what is allowed. Private to io/.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace spotlight {

// Parses one JSON object; `place` starts the messages. UserError if the text is anything else, or is nested so deep
// that walking it could exhaust the stack.
nlohmann::json ParseJsonObject(std::string_view text, const std::string& place);

// Parses the file; UserError if it is missing (with the nearest name in its folder) or not a JSON object.
nlohmann::json ReadJsonFile(const std::string& path);

// The integer at `key` in [low, high], or `fallback` if the key is absent. `place` starts the message.
int IntOr(const nlohmann::json& object, const std::string& place, const char* key, int fallback, int low, int high);
double NumberOr(const nlohmann::json& object, const std::string& place, const char* key, double fallback);
bool BoolOr(const nlohmann::json& object, const std::string& place, const char* key, bool fallback);

// A value for a message: JSON text of at most 60 characters.
std::string Brief(const nlohmann::json& value);

}  // namespace spotlight
