// The reward term `command`: a program of the user's judges the images (scripts/rewards/README.md).
//
// Request:  "image 1 <prompt bytes> <width> <height>\n", the prompt in UTF-8, width * height * 3 bytes of RGB, row by
//           row from the top, as the run's PNG files have them (halves are rounded to even). 1: version of the
//           protocol.
// Reply:    one line: a finite number, larger is better, or "error: text", which ends the run.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "base/image.hpp"
#include "reward/command_process.hpp"

namespace spotlight {

class CommandJudge {
 public:
  // Starts nothing yet. `limit`: for each image, and once more for the start.
  CommandJudge(std::string command, std::chrono::milliseconds limit)
      : command_(std::move(command)), limit_(limit), start_limit_(limit) {}

  // The program's number for the image. The first call starts the program, which then lives as long as this object.
  // Throws FileError if it cannot be started, ends, is late, or answers something else; it is then ended, not started
  // again, and later calls throw the same. Safe to call from several threads, which take turns.
  double Judge(const std::string& prompt, const Image& image);

  // 0 before the first call and after a failure.
  pid_t pid() const { return process_ ? process_->pid() : 0; }

 private:
  double AskFor(const std::string& prompt, const Image& image);

  std::string command_;
  std::chrono::milliseconds limit_;
  std::chrono::milliseconds start_limit_;  // 0 once it has answered
  std::mutex mutex_;                       // guards what follows
  std::unique_ptr<CommandProcess> process_;
  std::string failure_;
};

}  // namespace spotlight
