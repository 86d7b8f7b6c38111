#include "config/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.hpp"

namespace spotlight {
namespace {

std::vector<std::string> SectionNames(const std::vector<Section>& sections) {
  std::vector<std::string> names;
  names.reserve(sections.size());
  for (const Section& section : sections) names.push_back(section.name);
  return names;
}

// "section/key" that `key` was probably meant to be, or "": the same key elsewhere, else the nearest key of the
// section or one that `key` goes on from, else the nearest of all.
std::string NearestKey(const std::vector<Section>& sections, const std::string& section_name, const std::string& key) {
  std::vector<std::string> here;
  std::vector<std::string> everywhere;
  for (const Section& section : sections) {
    for (const Field& field : section.fields) {
      if (field.key == key) return section.name + "/" + key;
      if (section.name == section_name) here.push_back(field.key);
      everywhere.push_back(field.key);
    }
  }
  std::string nearest_here = NearestName(key, here);
  for (const std::string& candidate : here) {
    if (nearest_here.empty() && key.rfind(candidate, 0) == 0) nearest_here = candidate;  // lrate for lr
  }
  if (!nearest_here.empty()) return section_name + "/" + nearest_here;
  const std::string nearest = NearestName(key, everywhere);
  return nearest.empty() ? "" : NearestKey(sections, "", nearest);
}

}  // namespace

std::string DescribeUnknownKey(const std::vector<Section>& sections, const std::string& section_name,
                               const std::string& key, const std::string& value) {
  for (const Section& section : sections) {
    if (section.name != section_name) continue;
    const std::string nearest = NearestKey(sections, section_name, key);
    return fmt::format("unknown key {}/{} = {};{} (spotlight --describe {} lists the keys)", section_name, key, value,
                       nearest.empty() ? "" : " did you mean " + nearest + "?", section_name);
  }
  const std::string nearest = NearestName(section_name, SectionNames(sections));
  return fmt::format("unknown section [{}] of {} = {};{} sections: {}, notes", section_name, key, value,
                     nearest.empty() ? "" : " did you mean [" + nearest + "]?",
                     fmt::join(SectionNames(sections), ", "));
}

const Section& RequireSection(const std::vector<Section>& sections, const std::string& name) {
  for (const Section& section : sections) {
    if (section.name == name) return section;
  }
  const std::string nearest = NearestName(name, SectionNames(sections));
  throw UserError(fmt::format("--describe {}: there is no such section;{} sections: {}", name,
                              nearest.empty() ? "" : " did you mean " + nearest + "?",
                              fmt::join(SectionNames(sections), ", ")));
}

Override ParseOverride(const std::string& text) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  const std::size_t slash = name.find('/');
  const bool well_formed = equals != std::string::npos && slash != std::string::npos && slash > 0 &&
                           slash + 1 < name.size() && name.find(' ') == std::string::npos;
  if (well_formed) return {name.substr(0, slash), name.substr(slash + 1), text.substr(equals + 1)};

  Config config;
  const std::string key = name.substr(name.find_last_of("./-") + 1);  // train.lr and --lr are habits from elsewhere
  const std::string nearest = key.empty() ? "" : NearestKey(FieldList(config), "", key);
  const std::string value = equals == std::string::npos ? "=VALUE" : text.substr(equals);
  throw UserError(fmt::format("command line: '{}' is no override: write section/key=value without spaces{}", text,
                              nearest.empty() ? ", such as train/lr=1e-4" : "; did you mean " + nearest + value + "?"));
}

void RequireInputFile(const std::string& path) {
  std::error_code ignored;  // what cannot be looked at is not there
  if (std::filesystem::is_directory(path, ignored)) {
    throw UserError(fmt::format("{} is a folder; name the input file in it", path));
  }
  if (std::filesystem::exists(path, ignored)) return;
  const std::filesystem::path wanted(path);
  std::vector<std::string> names;
  const std::filesystem::path folder = wanted.has_parent_path() ? wanted.parent_path() : ".";
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file(ignored)) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const std::string nearest = NearestName(wanted.filename().string(), names);
  const std::string suggestion =
      nearest.empty() ? "" : fmt::format("; did you mean {}?", (wanted.parent_path() / nearest).string());
  throw UserError(fmt::format("there is no input file {}{}", path, suggestion));
}

}  // namespace spotlight
