// Mistyped names: what an unknown section, key or file was probably meant to be; and the form of an override.
#pragma once

#include <string>
#include <vector>

#include "config/fields.hpp"

namespace spotlight {

// "unknown key train/lrate = 3e-4; did you mean train/lr? (spotlight --describe train lists the keys)", or the like
// for an unknown section. A key that another section has is suggested there.
std::string DescribeUnknownKey(const std::vector<Section>& sections, const std::string& section, const std::string& key,
                               const std::string& value);

// Throws UserError if the section is not in the list.
const Section& RequireSection(const std::vector<Section>& sections, const std::string& name);

struct Override {
  std::string section;
  std::string key;
  std::string value;
};

// Splits "section/key=value"; the value may hold anything. Throws UserError that explains the form, and suggests the
// section where only the key was given.
Override ParseOverride(const std::string& text);

// Throws UserError with the nearest name in the folder if there is no such file, or if it is a folder.
void RequireInputFile(const std::string& path);

}  // namespace spotlight
