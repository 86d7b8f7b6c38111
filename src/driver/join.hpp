// Spot jobs that join a run: one that is an MPI job of its own, or a single process, and comes and goes as it likes.
#pragma once

#include <cstdint>
#include <string>

#include "comm/world.hpp"
#include "config/command_line.hpp"

namespace spotlight {

// RUN/join: where a joining job finds the coordinator, "tcp://host:port key run". A secret: readable by its owner only.
// Exists as long as this object.
class JoinFile {
 public:
  // FileError if it cannot be written.
  JoinFile(const std::string& directory, const std::string& address, std::uint64_t run_id);
  ~JoinFile();
  JoinFile(const JoinFile&) = delete;
  JoinFile& operator=(const JoinFile&) = delete;

 private:
  std::string path_;
};

// --join: explores and rolls out for a run until it ends, or this job is told to leave (any of SIGTERM, SIGINT,
// SIGUSR1). Settings come from the run; the files that they name must be readable here. Returns the exit code.
// UserError: no such run, or it takes nobody any more.
int RunJoin(const CommandLine& command, World& world);

// The name of the memory that the ranks of a run share on a node.
std::string NodeSession(std::uint64_t run_id);

}  // namespace spotlight
