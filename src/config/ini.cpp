#include "config/ini.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr const char* kBlank = " \t\r";

bool StartsComment(char c) { return c == '#' || c == ';'; }

// Where the comment of a value starts, or the end of the text.
std::size_t CommentBegin(const std::string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (StartsComment(text[i]) && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '\t')) return i;
  }
  return text.size();
}

// The value that starts with the quote text[0]; `place` for the message.
std::string Unquoted(const std::string& text, const std::string& place) {
  std::string value;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      const std::string rest = Trimmed(text.substr(i + 1));
      if (rest.empty() || StartsComment(rest[0])) return value;
      throw UserError(fmt::format("{}: '{}' follows the closing quote; write \\\" for a quote inside", place, rest));
    }
    const bool escaped = text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == '"' || text[i + 1] == '\\');
    if (escaped) ++i;
    value += text[i];
  }
  throw UserError(fmt::format("{}: the quote of {} is not closed on its line", place, text));
}

}  // namespace

std::string Trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::vector<IniEntry> SplitIni(const std::string& text, const std::string& name) {
  std::vector<IniEntry> entries;
  std::string section;
  int line = 0;
  std::size_t begin = text.rfind("\xEF\xBB\xBF", 0) == 0 ? 3 : 0;  // a byte order mark
  for (std::size_t end = 0; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    ++line;
    const std::string content = Trimmed(text.substr(begin, end - begin));
    if (content.empty() || StartsComment(content[0])) continue;
    const std::string place = fmt::format("{}:{}", name, line);
    if (content[0] == '[') {
      const std::string header = Trimmed(content.substr(0, CommentBegin(content)));
      if (header.back() != ']') throw UserError(fmt::format("{}: '{}' lacks its closing ]", place, header));
      section = Trimmed(header.substr(1, header.size() - 2));
      continue;
    }
    const std::size_t equals = content.find('=');
    const std::string key = Trimmed(content.substr(0, equals));
    if (equals == std::string::npos || key.empty()) {
      throw UserError(fmt::format("{}: '{}' is neither [section] nor key = value nor # comment", place, content));
    }
    if (section.empty()) throw UserError(fmt::format("{}: {} stands before the first [section]", place, key));
    std::string value = Trimmed(content.substr(equals + 1));
    value = !value.empty() && value[0] == '"' ? Unquoted(value, place) : Trimmed(value.substr(0, CommentBegin(value)));
    entries.push_back({section, key, value, line});
  }
  return entries;
}

std::string QuoteIniValue(const std::string& value) {
  SPOTLIGHT_REQUIRE(value.find('\n') == std::string::npos, "a value is one line");
  const bool plain = Trimmed(value) == value && CommentBegin(value) == value.size() && value.rfind('"', 0) != 0;
  if (plain) return value;
  std::string quoted = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace spotlight
