#include "io/fingerprint.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/prompt.hpp"
#include "base/random.hpp"

namespace spotlight {
namespace {

constexpr std::uintmax_t kWhole = 32 << 20, kPage = 4096, kPages = 1024;

}  // namespace

std::string Fingerprint(const std::vector<std::string>& paths) {
  std::uint64_t hash = 0;
  for (const std::string& path : paths) {
    std::error_code error;
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    std::ifstream file(path, std::ios::binary);
    const auto add = [&](std::uintmax_t begin, std::uintmax_t count) {
      std::string bytes(count, '\0');
      file.seekg(static_cast<std::streamoff>(begin));
      file.read(bytes.data(), static_cast<std::streamsize>(count));
      hash = StreamKey({hash, PromptId(bytes)});
    };
    hash = StreamKey({hash, size});
    if (!error && size <= kWhole) {
      add(0, size);
    } else if (!error) {
      for (std::uintmax_t i = 0; i <= kPages; ++i) add((size - kPage) / kPages * i, kPage);
      add(size - kPage, kPage);
    }
    if (error || !file) throw FileError(fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace spotlight
