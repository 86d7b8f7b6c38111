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

// Sets one key or note; `place` is what messages name and `config` remembers.
void SetEntry(Config& config, std::vector<Section>& sections, const IniEntry& entry, const std::string& place) {
  if (entry.section == "notes") {
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

// input.hpp's rule for paths; `base` is the folder above the input file's.
void ResolvePaths(std::vector<Section>& sections, const std::filesystem::path& base) {
  std::error_code ignored;  // what cannot be looked at is reported by whoever opens it
  for (Section& section : sections) {
    for (Field& field : section.fields) {
      const std::filesystem::path path = field.get();
      if (!field.is_path || path.empty() || path.is_absolute() || std::filesystem::exists(path, ignored)) continue;
      const std::filesystem::path candidate = (base / path).lexically_normal();
      // Of a file that is in neither place the message shall name the folder that exists, and look for a near name
      // there.
      const std::filesystem::path folder = path.parent_path();
      const bool only_folder = !folder.empty() && !std::filesystem::exists(folder, ignored) &&
                               std::filesystem::exists(candidate.parent_path(), ignored);
      if (only_folder || std::filesystem::exists(candidate, ignored)) field.set(candidate.string());
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
  ResolvePaths(sections, std::filesystem::absolute(name).parent_path().parent_path());
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
