#include "io/checkpoint.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/atomic_file.hpp"

namespace spotlight {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kMarker = "DONE";
constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kPartialSuffix = ".partial";

fs::path Folder(const std::string& run_dir) { return fs::path(run_dir) / "checkpoints"; }

fs::path PartialPath(const std::string& run_dir, int step) {
  return Folder(run_dir) / fmt::format(".{}{:06d}{}", kPrefix, step, kPartialSuffix);
}

// The step of a folder name "step_000120", or -1.
int StepOf(const std::string& name) {
  int step = -1;
  if (!name.starts_with(kPrefix)) return -1;
  const char* const end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kPrefix.size(), end, step);
  return parsed.ec == std::errc() && parsed.ptr == end ? step : -1;
}

// Runs a file-system operation, turning its exception into a FileError.
template <typename Operation>
auto Guarded(const Operation& operation) {
  try {
    return operation();
  } catch (const fs::filesystem_error& error) {
    throw FileError(fmt::format("{}: {}", error.path1().string(), error.code().message()));
  }
}

struct Fingerprint {
  std::uint64_t size = 0;
  std::uint64_t crc32 = 0;
};

// In blocks: a file may be as large as the memory.
Fingerprint FingerprintOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw FileError(path + ": cannot read: it is missing or not readable");
  Fingerprint result;
  std::vector<char> block(1 << 20);
  while (file) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    const auto got = static_cast<std::size_t>(file.gcount());
    result.crc32 = crc32_z(result.crc32, reinterpret_cast<const Bytef*>(block.data()), got);
    result.size += got;
  }
  if (file.bad()) throw FileError(path + ": cannot read: the device reports an error");
  return result;
}

// 0 if it is none, or is not there.
std::uint64_t NumberIn(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

// Steps of all folders named like a checkpoint, complete or not, ascending.
std::vector<int> AllSteps(const std::string& run_dir) {
  std::vector<int> steps;
  if (!fs::is_directory(Folder(run_dir))) return steps;
  for (const auto& entry : fs::directory_iterator(Folder(run_dir))) {
    const int step = StepOf(entry.path().filename().string());
    if (step >= 0 && entry.is_directory() && !entry.is_symlink()) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

// The marker goes first: a folder half removed by a kill must not look complete.
void RemoveCheckpoint(const fs::path& folder) {
  fs::remove(folder / kMarker);
  fs::remove_all(folder);
}

void PointLatestTo(const std::string& run_dir, int step) {
  const fs::path aside = Folder(run_dir) / ".latest.partial", latest = Folder(run_dir) / "latest";
  fs::remove(aside);
  fs::create_directory_symlink(fmt::format("{}{:06d}", kPrefix, step), aside);
  // Whoever copies a run without its links has a second copy of a checkpoint there.
  if (fs::is_directory(fs::symlink_status(latest))) fs::remove_all(latest);
  fs::rename(aside, latest);
}

void RemoveLater(const std::string& run_dir, int step) {
  for (const int later : AllSteps(run_dir)) {
    if (later > step) RemoveCheckpoint(CheckpointPath(run_dir, later));
  }
}

void RemoveOld(const std::string& run_dir, int keep) {
  const std::vector<int> steps = AllSteps(run_dir);
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < steps.size(); ++i) {
    RemoveCheckpoint(CheckpointPath(run_dir, steps[i]));
  }
  std::vector<fs::path> stale;
  for (const auto& entry : fs::directory_iterator(Folder(run_dir))) {
    if (entry.path().filename().string().ends_with(kPartialSuffix)) stale.push_back(entry.path());
  }
  for (const fs::path& path : stale) fs::remove_all(path);
}

}  // namespace

std::string CheckpointPath(const std::string& run_dir, int step) {
  return (Folder(run_dir) / fmt::format("{}{:06d}", kPrefix, step)).string();
}

std::string BeginCheckpoint(const std::string& run_dir, int step) {
  return Guarded([&] {
    const fs::path partial = PartialPath(run_dir, step);
    fs::remove_all(partial);
    fs::create_directories(partial);
    return partial.string();
  });
}

void CommitCheckpoint(const std::string& run_dir, int step, int keep, const std::vector<std::string>& names) {
  SPOTLIGHT_REQUIRE(keep >= 1, "at least the new checkpoint is kept");
  Guarded([&] {
    const fs::path partial = PartialPath(run_dir, step);
    json files = json::object();
    for (const std::string& name : names) {
      const std::string path = (partial / name).string();
      SyncPath(path);
      const Fingerprint fingerprint = FingerprintOf(path);
      files[name] = {{"size", fingerprint.size}, {"crc32", fingerprint.crc32}};
    }
    WriteFileAtomically((partial / kMarker).string(), json({{"step", step}, {"files", files}}).dump(1) + "\n");
    const std::string final_path = CheckpointPath(run_dir, step);
    RemoveCheckpoint(final_path);  // one of the same step, from before a resume
    fs::rename(partial, final_path);
    PointLatestTo(run_dir, step);
    SyncPath(Folder(run_dir).string());
    RemoveLater(run_dir, step);
    RemoveOld(run_dir, keep);
  });
}

void RemoveLaterCheckpoints(const std::string& run_dir, int step) {
  Guarded([&] {
    PointLatestTo(run_dir, step);
    RemoveLater(run_dir, step);
  });
}

bool HasCheckpoint(const std::string& run_dir, int step) {
  std::error_code error;
  return fs::exists(fs::path(CheckpointPath(run_dir, step)) / kMarker, error);
}

std::vector<int> ListCheckpoints(const std::string& run_dir) {
  return Guarded([&] {
    std::vector<int> steps = AllSteps(run_dir);
    std::erase_if(steps, [&](int step) { return !HasCheckpoint(run_dir, step); });
    return steps;
  });
}

void VerifyCheckpoint(const std::string& run_dir, int step) {
  const fs::path folder = CheckpointPath(run_dir, step);
  const std::string marker = (folder / kMarker).string();
  const json done = json::parse(ReadWholeFile(marker), nullptr, false);
  if (!done.is_object() || !done.contains("files") || !done["files"].is_object()) {
    throw FileError(marker + ": damaged: not the JSON that a checkpoint's marker holds");
  }
  for (const auto& [name, recorded] : done["files"].items()) {
    const std::string path = (folder / name).string();
    const Fingerprint found = FingerprintOf(path);
    const Fingerprint written = {NumberIn(recorded, "size"), NumberIn(recorded, "crc32")};
    if (found.size != written.size) {
      throw FileError(fmt::format("{}: damaged: it has {} bytes, {} were written", path, found.size, written.size));
    }
    if (found.crc32 != written.crc32) {
      throw FileError(path + ": damaged: its checksum does not match " + kMarker);
    }
  }
}

std::optional<int> NewestGoodCheckpoint(const std::string& run_dir, std::vector<std::string>& problems) {
  const std::vector<int> steps = ListCheckpoints(run_dir);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      VerifyCheckpoint(run_dir, *step);
      return *step;
    } catch (const FileError& error) {
      problems.emplace_back(error.what());
    }
  }
  return std::nullopt;
}

}  // namespace spotlight
