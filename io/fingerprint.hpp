// Whether files are still the same, without reading 40 GB: a hash of their sizes and of samples of their bytes.
#pragma once

#include <string>
#include <vector>

namespace spotlight {

// 16 hex digits, of the files in this order, whatever their paths. Files of up to 32 MiB count with every byte, larger
// ones with both ends and 1,024 pages between them. FileError if one cannot be read.
std::string Fingerprint(const std::vector<std::string>& paths);

}  // namespace spotlight
