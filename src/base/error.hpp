// Three kinds of failure, three mechanisms (docs/design.md, "Failures").
//
//   user mistake    -> throw UserError: one message with place, value, what is allowed, what to do;
//                      main prints it on one rank and exits with kExitUsage before any work
//   file system     -> throw FileError: the disk is full, a folder is not writable; kExitFile
//   our own bug     -> SPOTLIGHT_REQUIRE: expression, place, rank and host; kExitInternal
//
// The loss of a peer is none of these: it is a value that the caller handles.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace spotlight {

// sysexits' numbers where they fit, so that a batch script can act on them.
enum ExitCode : int {
  kExitFinished = 0,
  kExitInternal = 1,
  kExitUsage = 2,
  kExitFile = 74,     // EX_IOERR: results may be incomplete, the last checkpoint is good
  kExitStopped = 75,  // EX_TEMPFAIL: stopped early with a good checkpoint; `-r latest` goes on
};

class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class FileError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// Throws InternalError("<file>:<line>: <expression> does not hold (<message>) [rank r on host]").
[[noreturn]] void FailRequire(const char* expression, const char* file, int line, const std::string& message);

// Names this process in internal errors; called once the world is known.
void SetProcessName(const std::string& name);
const std::string& ProcessName();

// The candidate nearest to `name` by edit distance, or "" if none is near enough to be a typing
// error (distance at most 1 for three letters, 2, or a third of the name). For "did you mean".
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

}  // namespace spotlight

#define SPOTLIGHT_REQUIRE(condition, message)                                              \
  do {                                                                                     \
    if (!(condition)) ::spotlight::FailRequire(#condition, __FILE__, __LINE__, (message)); \
  } while (false)
