// What this binary is: for --version and --show-config.
#pragma once

#include <string>

namespace spotlight {

std::string VersionText();  // "spotlight 0.1.0 (git 1234abcd)"
std::string BuildText();    // compiler, libraries, back ends; one "name: value" a line

}  // namespace spotlight
