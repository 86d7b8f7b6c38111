#include "io/tensor_store_folder.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.hpp"

namespace spotlight {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "iteration_", kSuffix = ".h5";

}  // namespace

std::string TensorStoreFileName(std::uint32_t iteration, std::size_t number) {
  return fmt::format("{}{:06}_{:02}{}", kPrefix, iteration, number, kSuffix);
}

std::optional<std::uint32_t> TensorStoreIteration(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  name.remove_suffix(kSuffix.size());
  std::uint32_t iteration = 0;
  std::size_t number = 0;
  const char* const end = name.data() + name.size();
  const auto first = std::from_chars(name.data(), end, iteration);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '_') return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, number);
  if (second.ec != std::errc() || second.ptr != end) return std::nullopt;
  return iteration;
}

std::vector<std::string> ListTensorStore(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator files(folder, error);
  for (; !error && files != fs::directory_iterator(); files.increment(error)) {
    std::string name = files->path().filename().string();
    const bool ours = TensorStoreIteration(name).has_value();
    if (ours) names.push_back(name);
    const std::string_view half = ".partial";
    if (!ours && name.starts_with('.') && name.ends_with(half) &&
        TensorStoreIteration(std::string_view(name).substr(1, name.size() - 1 - half.size()))) {
      unlink(files->path().c_str());
    }
  }
  if (error) throw FileError(fmt::format("{}: cannot list: {}", folder, error.message()));
  std::sort(names.begin(), names.end());
  return names;
}

void RemoveTensorStore(const std::string& folder) {
  if (!fs::is_directory(folder)) return;
  std::error_code error;
  for (const std::string& name : ListTensorStore(folder)) {
    fs::remove(fs::path(folder) / name, error);
    if (error) throw FileError(fmt::format("{}/{}: cannot remove: {}", folder, name, error.message()));
  }
  fs::remove(folder, error);  // refused if there are other files in it
}

}  // namespace spotlight
