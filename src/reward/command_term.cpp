#include "reward/command_term.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <vector>

#include "base/error.hpp"
#include "base/quantize.hpp"
#include "reward/reward_term.hpp"

namespace spotlight {
namespace {

std::string RequestFor(const std::string& prompt, const Image& image) {
  const std::vector<std::uint8_t> pixels = Quantize(image);
  std::string request = fmt::format("image 1 {} {} {}\n", prompt.size(), image.width, image.height);
  request.reserve(request.size() + prompt.size() + pixels.size());
  request += prompt;
  request.append(pixels.begin(), pixels.end());
  return request;
}

std::string_view Stripped(std::string_view text) {
  const char* const space = " \t\r";
  const std::size_t first = text.find_first_not_of(space);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(space) - first + 1);
}

}  // namespace

double CommandJudge::Judge(const std::string& prompt, const Image& image) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw FileError(failure_);
  try {
    if (!process_) process_ = std::make_unique<CommandProcess>(command_);
    return AskFor(prompt, image);
  } catch (const FileError& error) {
    failure_ = error.what();
    process_.reset();
    throw;
  }
}

double CommandJudge::AskFor(const std::string& prompt, const Image& image) {
  const std::string reply = process_->Ask(RequestFor(prompt, image), limit_ + start_limit_);
  start_limit_ = {};
  const std::string_view text = Stripped(reply);
  if (text.starts_with("error:")) {
    throw FileError(
        fmt::format("reward/command = {}: {}, it says of the image of {}", command_, Quoted(text), Quoted(prompt)));
  }
  double score = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), score);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(score)) {
    throw FileError(
        fmt::format("reward/command = {}: answered {}; the answer to an image is one line with a finite number, or "
                    "\"error: text\" (scripts/rewards/README.md has the protocol)",
                    command_, Quoted(reply)));
  }
  return score;
}

std::vector<RewardTerm> CommandTerms() {
  return {{.name = "command",
           .description = "the number that a program of yours gives the image (scripts/rewards/README.md)",
           .needs_command = true,
           .score = [](const RewardInput& input) { return input.command->Judge(input.prompt.text, input.image); }}};
}

}  // namespace spotlight
