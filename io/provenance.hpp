// Where a result comes from: openPMD's names (software, softwareVersion, date, machine) and what a reader needs to
// build the same program again.
#pragma once

#include <map>
#include <string>

namespace spotlight {

// software, softwareVersion, softwareDependencies (compiler, HDF5), date (ISO 8601, local time with offset), machine
// (host and CPU model), git_sha, git_dirty ("yes" | "no"; "unknown" outside a git checkout), format_version.
std::map<std::string, std::string> Provenance();

}  // namespace spotlight
