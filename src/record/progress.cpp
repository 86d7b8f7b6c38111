#include "record/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/log.hpp"

namespace spotlight {
namespace {

constexpr std::chrono::milliseconds kRedraw(100);
constexpr std::chrono::seconds kLogInterval(30);
constexpr int kBarWidth = 30;

}  // namespace

std::string DescribeSeconds(double seconds) {
  const long s = std::lround(seconds);
  if (s < 100) return fmt::format("{} s", s);
  if (s < 6000) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

Progress::Progress(int iterations)
    : iterations_(iterations),
      terminal_(isatty(fileno(stdout)) != 0 && std::getenv("SPOTLIGHT_NO_TERMINAL") == nullptr),
      last_shown_(std::chrono::steady_clock::now()) {}

void Progress::Phase(const std::string& what, std::size_t done, std::size_t total) {
  const auto now = std::chrono::steady_clock::now();
  if (total == 0 || now - last_shown_ < (terminal_ ? std::chrono::milliseconds(kRedraw) : kLogInterval)) return;
  last_shown_ = now;
  if (!terminal_) {
    LogLine(fmt::format("{} {}/{}", what, done, total));
    return;
  }
  const int filled = static_cast<int>(kBarWidth * done / total);
  fmt::print("\r\033[K{:<18} [{}{}] {}/{}", what, std::string(static_cast<std::size_t>(filled), '='),
             std::string(static_cast<std::size_t>(kBarWidth - filled), ' '), done, total);
  std::fflush(stdout);
  bar_shown_ = true;
}

void Progress::ClearBar() {
  if (!bar_shown_) return;
  fmt::print("\r\033[K");
  bar_shown_ = false;
}

void Progress::Line(const std::string& text) {
  ClearBar();
  LogLine(text);
  last_shown_ = std::chrono::steady_clock::now();
}

void Progress::Step(int iteration, const std::map<std::string, double>& values, double seconds_left) {
  const double reward = values.at("reward_mean");
  std::string line = fmt::format("iteration {}/{} | reward {:.3f}", iteration + 1, iterations_, reward);
  if (has_last_reward_) line += fmt::format(" ({:+.3f})", reward - last_reward_);
  last_reward_ = reward;
  has_last_reward_ = true;
  line += fmt::format(" | zero-spread {:.0f}% | clip {:.0f}% | spot {} | {:.2f} s | {:.0f} img/s | ETA {}",
                      100 * values.at("group_zero_spread_ratio"),
                      100 * (values.at("policy_clip_frac_high") + values.at("policy_clip_frac_low")),
                      static_cast<int>(values.at("ranks_spot")), values.at("time_step_s"),
                      values.at("perf_images_per_s"), DescribeSeconds(seconds_left));
  // Nothing was lost: nothing to say.
  const double goodput = values.at("goodput");
  if (goodput < 0.9995) line += fmt::format(" | goodput {:.1f}%", 100 * goodput);
  const auto strict = values.find("eval_strict");
  if (strict != values.end() && !std::isnan(strict->second)) {
    line += fmt::format(" | eval {:.3f} +- {:.3f}", strict->second, values.at("eval_strict_se"));
  }
  Line(line);
}

}  // namespace spotlight
