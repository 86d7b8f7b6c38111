#include "config/input.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.hpp"
#include "config/fields.hpp"
#include "config/ini.hpp"
#include "config/suggest.hpp"

namespace spotlight {
namespace {

constexpr const char* kCommandLine = "command line";

Field* FindField(std::vector<Section>& sections, const std::string& section_name, const std::string& key) {
  for (Section& section : sections) {
    if (section.name != section_name) continue;
    for (Field& field : section.fields) {
      if (field.key == key) return &field;
    }
  }
  return nullptr;
}

// What makes a note unfit for a line of an input file, which the run's record is; "" if nothing does.
std::string WrongNote(const IniEntry& note) {
  const bool plain_key = note.key.find_first_of("\n\r\t") == std::string::npos && note.key.find_first_of("[#;") != 0;
  if (!plain_key) return "the key is to be one word that does not begin with [, # or ;";
  return note.value.find('\n') == std::string::npos ? "" : "the text is to be one line";
}

// Sets one key or note; `place` is what messages name and `config` remembers.
void SetEntry(Config& config, std::vector<Section>& sections, const IniEntry& entry, const std::string& place) {
  if (entry.section == "notes") {
    if (const std::string wrong = WrongNote(entry); !wrong.empty()) {
      throw UserError(fmt::format("{}: notes/{} = {}: {}", place, entry.key, entry.value, wrong));
    }
    config.notes[entry.key] = entry.value;
    return;
  }
  const std::string name = entry.section + "/" + entry.key;
  Field* field = FindField(sections, entry.section, entry.key);
  if (field == nullptr) {
    throw UserError(fmt::format("{}: {}", place, DescribeUnknownKey(sections, entry.section, entry.key, entry.value)));
  }
  const std::string wrong = field->set(entry.value);
  if (!wrong.empty()) {
    throw UserError(fmt::format("{}: {} = {} {}; allowed: {}", place, name,
                                entry.value.empty() ? "(nothing)" : entry.value, wrong,
                                field->allowed.empty() ? "one line of text" : field->allowed));
  }
  config.sources[name] = place;
}

// What input.hpp's rule makes of a relative path that is not in the working directory. `folder`: the input file's.
std::string ResolvedPath(const std::filesystem::path& path, const std::filesystem::path& folder) {
  std::error_code ignored;  // what cannot be looked at is reported by whoever opens it
  const std::filesystem::path above[] = {folder.parent_path(), folder.parent_path().parent_path()};
  for (const std::filesystem::path& base : above) {
    const std::filesystem::path candidate = (base / path).lexically_normal();
    if (std::filesystem::exists(candidate, ignored)) return candidate.string();
  }
  // Of a file that is nowhere the message shall name the folder that exists, and look for a near name there.
  if (!path.has_parent_path() || std::filesystem::exists(path.parent_path(), ignored)) return path.string();
  for (const std::filesystem::path& base : above) {
    const std::filesystem::path candidate = (base / path).lexically_normal();
    if (std::filesystem::exists(candidate.parent_path(), ignored)) return candidate.string();
  }
  return path.string();
}

void ResolvePaths(std::vector<Section>& sections, const std::filesystem::path& folder) {
  std::error_code ignored;
  for (Section& section : sections) {
    for (Field& field : section.fields) {
      const std::filesystem::path path = field.get();
      if (!field.is_path || path.empty() || path.is_absolute() || std::filesystem::exists(path, ignored)) continue;
      field.set(ResolvedPath(path, folder));
    }
  }
}

}  // namespace

Config ReadInputText(const std::string& text, const std::string& name, const std::vector<std::string>& overrides) {
  Config config;
  std::vector<Section> sections = FieldList(config);
  std::map<std::string, int> lines;
  for (const IniEntry& entry : SplitIni(text, name)) {
    const std::string place = fmt::format("{}:{}", name, entry.line);
    const std::string key = entry.section + "/" + entry.key;
    const auto [first, is_new] = lines.emplace(key, entry.line);
    if (!is_new) {
      throw UserError(fmt::format("{}: {} = {} is given a second time; line {} gives it first. Remove one of the two",
                                  place, key, entry.value, first->second));
    }
    SetEntry(config, sections, entry, place);
  }
  for (const std::string& text_override : overrides) {
    const Override parsed = ParseOverride(text_override);
    SetEntry(config, sections, {parsed.section, parsed.key, parsed.value, 0}, kCommandLine);
  }
  ResolvePaths(sections, std::filesystem::absolute(name).parent_path());
  return config;
}

Config ReadInput(const std::string& path, const std::vector<std::string>& overrides) {
  RequireInputFile(path);
  std::ifstream file(path);
  if (!file) throw UserError(fmt::format("{}: the input file cannot be opened: {}", path, std::strerror(errno)));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return ReadInputText(text, path, overrides);
}

std::string DescribeOverrides(const Config& config) {
  std::vector<std::string> names;
  for (const auto& [name, source] : config.sources) {
    if (source == kCommandLine) names.push_back(name);
  }
  if (names.empty()) return "";
  return fmt::format("{} value{} overridden on the command line: {}", names.size(), names.size() == 1 ? "" : "s",
                     fmt::join(names, ", "));
}

}  // namespace spotlight
