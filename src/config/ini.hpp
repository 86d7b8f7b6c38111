// The text form of an input: splitting it into (section, key, value, line), and quoting a value for it.
//
// The splitting is ours rather than inih's: inih as packaged cuts lines at 199 characters, knows no quotes (a negative
// prompt may need them) and does not tell its handler the line, which every message must name.
#pragma once

#include <string>
#include <vector>

namespace spotlight {

struct IniEntry {
  std::string section;
  std::string key;
  std::string value;  // without comment, quotes and the white space around it
  int line = 0;       // from 1
};

// `text` without the blanks at its ends.
std::string Trimmed(const std::string& text);

// The entries of `text` in its order; the grammar is that of input.hpp. `name` stands for the file in messages.
// Throws UserError("<name>:<line>: ...") for a line that is no section, key or comment, and for a key before the
// first section.
std::vector<IniEntry> SplitIni(const std::string& text, const std::string& name);

// `value` as SplitIni reads it back: in quotes if it would not survive otherwise. It must be one line.
std::string QuoteIniValue(const std::string& value);

}  // namespace spotlight
