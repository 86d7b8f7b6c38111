// What to say of a file that is not there.
#pragma once

#include <string>

namespace spotlight {

// "<path>: no such file", and the nearest name in its folder if there is one.
std::string MissingFileMessage(const std::string& path);

}  // namespace spotlight
