#include "config/dump.hpp"

#include <fmt/format.h>

#include "config/ini.hpp"
#include "config/suggest.hpp"

namespace spotlight {
namespace {

// "key = value", padded so that the comments of a section stand below each other unless the value is long.
std::string Assignment(const std::string& key, const std::string& value) {
  return fmt::format("{:<28}", key + " = " + QuoteIniValue(value));
}

std::string DescribeField(const Field& field) {
  std::string text = Assignment(field.key, field.get()) + "  # ";
  if (!field.allowed.empty()) text += field.allowed + "; ";
  text += field.help;
  if (field.on_resume == OnResume::kFixedOnResume) text += " *";
  return text + "\n";
}

}  // namespace

std::string DumpConfig(const Config& config) {
  Config copy = config;  // the list binds to something that it may set
  std::string text;
  for (const Section& section : FieldList(copy)) {
    text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section.name);
    for (const Field& field : section.fields) {
      const auto source = config.sources.find(section.name + "/" + field.key);
      text += fmt::format("{}  # {}\n", Assignment(field.key, field.get()),
                          source == config.sources.end() ? "default" : source->second);
    }
  }
  if (!config.notes.empty()) text += "\n[notes]\n";
  for (const auto& [key, value] : config.notes) text += fmt::format("{} = {}\n", key, QuoteIniValue(value));
  return text;
}

std::string DescribeSection(const std::string& section_or_key) {
  const std::string name = section_or_key.substr(0, section_or_key.find('/'));
  Config defaults;
  const std::vector<Section> sections = FieldList(defaults);
  if (!name.empty()) RequireSection(sections, name);
  std::string text = "# key = default  # allowed; meaning   (*: a resumed run may not change it)\n";
  for (const Section& section : sections) {
    if (!name.empty() && section.name != name) continue;
    text += fmt::format("\n[{}]  # {}\n", section.name, section.help);
    for (const Field& field : section.fields) text += DescribeField(field);
  }
  if (name.empty()) text += "\n[notes]  # any keys: free text, kept in the run's record\n";
  return text;
}

std::vector<Difference> CompareConfigs(const Config& first, const Config& second) {
  Config a = first;
  Config b = second;
  const std::vector<Section> sections_a = FieldList(a);
  const std::vector<Section> sections_b = FieldList(b);
  std::vector<Difference> differences;
  for (std::size_t s = 0; s < sections_a.size(); ++s) {
    for (std::size_t f = 0; f < sections_a[s].fields.size(); ++f) {
      const Field& field = sections_a[s].fields[f];
      const std::string value_a = field.get();
      const std::string value_b = sections_b[s].fields[f].get();
      if (value_a == value_b) continue;
      differences.push_back({sections_a[s].name + "/" + field.key, value_a, value_b, field.on_resume});
    }
  }
  return differences;
}

}  // namespace spotlight
