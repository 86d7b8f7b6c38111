#include "driver/failure.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.hpp"
#include "comm/peer_lost.hpp"
#include "driver/dispatch.hpp"

namespace spotlight {

Failure DescribeFailure(const std::exception& error) {
  if (const auto* files = dynamic_cast<const std::filesystem::filesystem_error*>(&error)) {
    return {kExitFile, fmt::format("{}: {}", files->path1().string(), files->code().message())};
  }
  if (dynamic_cast<const FileError*>(&error) != nullptr) return {kExitFile, error.what()};
  if (dynamic_cast<const UserError*>(&error) != nullptr) return {kExitUsage, error.what()};
  if (dynamic_cast<const PeerLost*>(&error) != nullptr) return {kExitStopped, error.what()};
  if (const auto* failed = dynamic_cast<const RunFailed*>(&error)) return {failed->exit_code(), error.what()};
  return {kExitInternal, error.what()};
}

}  // namespace spotlight
