#include "reward/command_term.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/error.hpp"
#include "reward/reward_term.hpp"

namespace spotlight {
namespace {

// As io/quantize.hpp: values are clamped to [0, 1], 255 x is rounded to nearest, halves to even; NaN becomes 0.
void AppendPixels(const Image& image, std::string& bytes) {
  for (const float x : image.rgb) {
    bytes += x > 0 ? static_cast<char>(std::lrint(255.0f * (x < 1 ? x : 1.0f))) : '\0';
  }
}

std::string RequestFor(const std::string& prompt, const Image& image) {
  SPOTLIGHT_REQUIRE(image.rgb.size() == std::size_t{3} * image.height * image.width, "an image of height x width x 3");
  std::string request = fmt::format("image 1 {} {} {}\n", prompt.size(), image.width, image.height);
  request.reserve(request.size() + prompt.size() + image.rgb.size());
  request += prompt;
  AppendPixels(image, request);
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
