#include "base/log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>

namespace spotlight {
namespace {

std::shared_ptr<spdlog::logger> MakeConsole() {
  auto sink = std::make_shared<spdlog::sinks::stdout_sink_mt>();
  sink->set_pattern("%v");
  return std::make_shared<spdlog::logger>("spotlight", std::move(sink));
}

std::shared_ptr<spdlog::logger>& Logger() {
  static std::shared_ptr<spdlog::logger> logger = MakeConsole();
  return logger;
}

std::atomic<int> warnings{0};

}  // namespace

void OpenLog(const std::string& path, bool console) {
  std::vector<spdlog::sink_ptr> sinks;
  if (console) sinks = MakeConsole()->sinks();
  try {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
    file->set_pattern("%Y-%m-%d %H:%M:%S.%e %v");
    sinks.push_back(std::move(file));
  } catch (const spdlog::spdlog_ex&) {
    sinks = MakeConsole()->sinks();
  }
  Logger() = std::make_shared<spdlog::logger>("spotlight", sinks.begin(), sinks.end());
  Logger()->flush_on(spdlog::level::info);
}

void LogLine(const std::string& text) { Logger()->info("{}", text); }

void LogWarning(const std::string& text) {
  ++warnings;
  LogLine("warning: " + text);
}

int CountWarnings() { return warnings; }

}  // namespace spotlight
