// The commit that was built; git_version.cpp is generated at build time (io/git_version.cmake).
#pragma once

namespace spotlight {

extern const char kGitSha[];    // 40 hex digits, or "unknown" outside a git checkout
extern const char kGitDirty[];  // "yes", "no" or "unknown"

}  // namespace spotlight
