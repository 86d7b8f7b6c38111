// A program of the user's that answers requests on its standard input with lines on its standard output.
//
// It is run by `/bin/sh -c` in the folder and with the environment of this process, in a process group of its own, and
// its standard error is ours. It never outlives this process, however that ends: a second shell in the group waits on a
// pipe whose other end only we hold, and kills the group when that end closes. (PR_SET_PDEATHSIG would reach only the
// shell, would strike already when the thread that started it ends, and posix_spawn, which unlike fork is safe and
// cheap beside MPI, OpenMP and tens of gigabytes, cannot set it.)
//
// Failures are FileErrors, "reward/command = <command>: ...": like a full disk, they lie outside the program, and the
// run can go on from its checkpoint once they are repaired. After one the process is of no more use.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>

namespace spotlight {

// Owns a file descriptor; -1: none.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor() { Close(); }

  int number() const { return number_; }
  void Close();

 private:
  int Release();

  int number_ = -1;
};

class CommandProcess {
 public:
  // Starts it; does not wait for anything.
  explicit CommandProcess(const std::string& command);
  // Ends it and all that it started: end of input and SIGTERM, after two seconds SIGKILL.
  ~CommandProcess();
  CommandProcess(const CommandProcess&) = delete;
  CommandProcess& operator=(const CommandProcess&) = delete;

  // Sends `request` and returns the line that comes back, without its end. Throws if the process ends, takes longer
  // than `limit`, or writes more or less than one line per request.
  std::string Ask(std::string_view request, std::chrono::milliseconds limit);

  pid_t pid() const { return pid_; }  // also of the process group

 private:
  // Both move what goes at once, to the end of `output` and from the start of `bytes`. False: the pipe has ended.
  bool Read(std::string& output);
  bool Write(std::string_view& bytes);
  // "ended with exit status 3", "was killed by signal 9 (Killed)"; empty if it still runs after `limit`.
  std::string Ending(std::chrono::milliseconds limit) const;
  [[noreturn]] void Fail(const std::string& what) const;

  std::string command_;
  pid_t pid_ = -1;
  Descriptor requests_;
  Descriptor replies_;
  Descriptor lifeline_;
};

// `text` for a message: at most 200 bytes of it, in double quotes, control characters as '?'.
std::string Quoted(std::string_view text);

}  // namespace spotlight
