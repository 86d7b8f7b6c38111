#include "io/missing_file.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <vector>

#include "base/error.hpp"

namespace spotlight {

std::string MissingFileMessage(const std::string& path) {
  const std::filesystem::path p(path);
  const std::filesystem::path folder = p.has_parent_path() ? p.parent_path() : std::filesystem::path(".");
  std::error_code code;
  if (!std::filesystem::is_directory(folder, code)) {
    return fmt::format("{}: no such file; the folder {} does not exist", path, folder.string());
  }
  std::vector<std::string> present;
  for (const auto& entry : std::filesystem::directory_iterator(folder, code)) {
    present.push_back(entry.path().filename().string());
  }
  const std::string nearest = NearestName(p.filename().string(), present);
  return path + ": no such file" + (nearest.empty() ? "" : "; did you mean " + (folder / nearest).string() + "?");
}

}  // namespace spotlight
