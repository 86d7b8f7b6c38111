#include "io/provenance.hpp"

#include <fmt/format.h>
#include <hdf5.h>
#include <unistd.h>

#include <ctime>
#include <fstream>

#include "io/git_version.hpp"

namespace spotlight {
namespace {

// Raised when a reader of run.h5 or of a checkpoint has to know the difference.
constexpr const char* kFormatVersion = "1";

std::string CpuModel() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown processor";
}

std::string HostName() {
  char name[256] = "unknown host";
  gethostname(name, sizeof(name) - 1);
  return name;
}

// 2026-01-31T12:00:00+0100
std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[64];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S%z", &local);
  return text;
}

}  // namespace

std::map<std::string, std::string> Provenance() {
  // The headers' version: asking the library would start it before io/h5.cpp has set it up. HDF5 itself refuses to run
  // with a library of another version.
  return {
      {"software", "spotlight"},
      {"softwareVersion", SPOTLIGHT_VERSION},
      {"softwareDependencies",
       fmt::format("compiler {}; HDF5 {}.{}.{}", __VERSION__, H5_VERS_MAJOR, H5_VERS_MINOR, H5_VERS_RELEASE)},
      {"date", Now()},
      {"machine", HostName() + ", " + CpuModel()},
      {"git_sha", kGitSha},
      {"git_dirty", kGitDirty},
      {"format_version", kFormatVersion},
  };
}

}  // namespace spotlight
