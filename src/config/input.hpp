// Reads the input file: sections of `key = value   # comment`, then `section/key=value` from the command line.
//
// Precedence: defaults < file < command line. A comment starts with `#` or `;` at the start of a line or after white
// space; a value in double quotes keeps its white space and these characters (\" and \\ inside). A section may be
// opened again; a key may be given once. [notes] holds any keys: free text, kept in the dump and otherwise ignored.
//
// A key that names files to be read (model/path, prompts/train, prompts/eval, reward/detector) is relative to the
// working directory or, if nothing is there, to the folder above the input file's, or to the one above that:
// inputs/geneval.ini and inputs/baselines/critical.ini name inputs/models/..., and work from anywhere. What is found
// there replaces the value, and so does what is nowhere, if its folder is there.
#pragma once

#include <string>
#include <vector>

#include "config/config.hpp"

namespace spotlight {

// Throws UserError, naming file:line and what is allowed, for: a file that is not there (with the nearest name in its
// folder), a line that is none of the above, an unknown section or key, a key given twice, a value not allowed.
Config ReadInput(const std::string& path, const std::vector<std::string>& overrides);

// The same for text in memory (the resolved input of a checkpoint); `name` stands for the file in messages.
Config ReadInputText(const std::string& text, const std::string& name, const std::vector<std::string>& overrides);

// "3 values overridden on the command line: run/seed, train/lr, train/updates"; empty if none is.
std::string DescribeOverrides(const Config& config);

}  // namespace spotlight
