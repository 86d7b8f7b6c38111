// A disk that is full after `bytes`, for a forked child: the file size limit of the process.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <string>

#include "base/error.hpp"

namespace spotlight {

// Runs `action` in a child that may write files of at most `bytes`. Returns the FileError's message; "no error" if the
// action finished; the kind of death otherwise.
inline std::string FileErrorOnFullDisk(rlim_t bytes, const std::function<void()>& action) {
  int ends[2];
  if (pipe(ends) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::string outcome = "no error";
    try {
      action();
    } catch (const FileError& error) {
      outcome = error.what();
    } catch (...) {
      outcome = "another exception";
    }
    const ssize_t written = write(ends[1], outcome.data(), outcome.size());
    std::_Exit(written == static_cast<ssize_t>(outcome.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string outcome;
  char block[512];
  for (ssize_t got = 0; (got = read(ends[0], block, sizeof(block))) > 0;) {
    outcome.append(block, static_cast<std::size_t>(got));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) outcome += " (the child died)";
  return outcome;
}

}  // namespace spotlight
