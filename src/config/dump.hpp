// A Config as text, the settings' help, and the difference of two Configs; all from the field list (fields.hpp).
#pragma once

#include <string>
#include <vector>

#include "config/config.hpp"
#include "config/fields.hpp"

namespace spotlight {

// The resolved input: every key with its value and, as a comment, where it came from. ReadInputText of the result
// gives the same settings.
std::string DumpConfig(const Config& config);

// The keys of one section ("train" or "train/lr"), or of all sections if the name is empty: default, allowed values,
// meaning and unit. Throws UserError for an unknown section.
std::string DescribeSection(const std::string& section_or_key);

struct Difference {
  std::string key;  // "section/key"
  std::string first;
  std::string second;
  OnResume on_resume;
};

// The keys in which two Configs differ, in the order of the field list; notes and sources do not count.
std::vector<Difference> CompareConfigs(const Config& first, const Config& second);

}  // namespace spotlight
