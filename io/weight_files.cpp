#include "io/weight_files.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>

#include "base/error.hpp"
#include "io/atomic_file.hpp"
#include "io/elements.hpp"
#include "io/json_reading.hpp"

namespace spotlight {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 4> kWeightTypes = {"F32", "F64", "F16", "BF16"};
constexpr std::size_t kChunk = std::size_t{1} << 15;  // elements checked while they are in the cache
constexpr std::size_t kKept = std::size_t{1} << 21;   // elements read before their pages are given back

// A plain file name cannot leave the folder, and published indices hold nothing else.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

// New memory costs a page fault every 4 KiB, more than the conversion itself; asks the system for its large pages. A
// hint: without effect where the memory is in use already or the system has none.
void AskForLargePages(void* begin, std::size_t bytes) {
  constexpr std::uintptr_t kLargePage = std::uintptr_t{1} << 21;
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = (address + kLargePage - 1) / kLargePage * kLargePage;
  const std::uintptr_t end = (address + bytes) / kLargePage * kLargePage;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}

// Converts a tensor; returns the first element that is not finite, or out.size().
template <typename T>
std::size_t ConvertTensor(const SafetensorsFile& file, const TensorInfo& info, std::span<T> out) {
  const std::span<const std::byte> bytes = file.Bytes(info);
  const std::size_t element = BytesPerElement(info.dtype);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < out.size(); i += kChunk) {
    const std::size_t count = std::min(kChunk, out.size() - i);
    const std::span<T> part = out.subspan(i, count);
    ConvertElements(info.dtype, bytes.data() + i * element, part);
    const std::size_t bad = FindNotFinite(part);
    if (bad < count) return i + bad;
    if (i + count - kept >= kKept || i + count == out.size()) {
      file.Release(bytes.subspan(kept * element, (i + count - kept) * element));
      kept = i + count;
    }
  }
  return out.size();
}

}  // namespace

std::map<std::string, std::string> ParseWeightMap(std::string_view text, const std::string& place) {
  const json index = ParseJsonObject(text, place);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) {
    throw UserError(place + ": \"weight_map\" must be an object of tensor name -> shard file");
  }
  std::map<std::string, std::string> shard_of;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string() || !IsPlainFileName(shard.get<std::string>())) {
      throw UserError(fmt::format("{}: the shard of {} is {}; the name of a file in the same folder is meant", place,
                                  tensor, Brief(shard)));
    }
    shard_of.emplace(tensor, shard.get<std::string>());
  }
  return shard_of;
}

WeightFiles::WeightFiles(const std::string& folder, const std::string& stem) : folder_(folder) {
  const std::filesystem::path base(folder);
  if (!std::filesystem::is_directory(base)) throw UserError(folder + ": no such folder; a model folder is meant");
  const std::string single = (base / (stem + ".safetensors")).string();
  const std::string index = single + ".index.json";
  if (std::filesystem::exists(single)) {
    files_.emplace_back(single);
    for (const auto& [name, info] : files_[0].tensors()) file_of_.emplace(name, 0);
  } else if (std::filesystem::exists(index)) {
    OpenShards(index);
  } else {
    throw UserError(fmt::format("{}: no weights: neither {} nor {} is there", folder, single, index));
  }
}

void WeightFiles::OpenShards(const std::string& index_path) {
  const std::map<std::string, std::string> shard_of = ParseWeightMap(ReadWholeFile(index_path), index_path);
  std::map<std::string, std::vector<std::string>> by_shard;
  for (const auto& [tensor, shard] : shard_of) by_shard[shard].push_back(tensor);
  for (const auto& [shard, names] : by_shard) {
    const std::string path = (std::filesystem::path(folder_) / shard).string();
    if (!std::filesystem::exists(path)) {
      throw UserError(fmt::format("{}: the shard {} is missing ({} of {} tensors are in it)", index_path, path,
                                  names.size(), shard_of.size()));
    }
    const SafetensorsFile& file = files_.emplace_back(path);
    for (const std::string& name : names) {
      if (!file.Has(name)) {
        throw UserError(
            fmt::format("{}: lists tensor {} in {}, which does not have it; index and shards must be of one "
                        "checkpoint: download or copy them again",
                        index_path, name, path));
      }
      file_of_.emplace(name, files_.size() - 1);
    }
  }
}

std::vector<std::string> WeightFiles::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

const SafetensorsFile& WeightFiles::FileOf(const std::string& name) const {
  const auto found = file_of_.find(name);
  if (found != file_of_.end()) return files_[found->second];
  const std::string nearest = NearestName(name, Names());
  throw UserError(
      fmt::format("{}: has no tensor {}{}", folder_, name, nearest.empty() ? "" : "; the nearest is " + nearest));
}

Shape WeightFiles::ShapeOf(const std::string& name) const { return FileOf(name).Info(name).shape; }

template <typename T>
void WeightFiles::ReadElements(const std::string& name, std::span<T> out) const {
  const SafetensorsFile& file = FileOf(name);
  const TensorInfo& info = file.Info(name);
  SPOTLIGHT_REQUIRE(static_cast<Index>(out.size()) == NumElements(info.shape), file.path() + ": tensor " + name);
  if (std::find(kWeightTypes.begin(), kWeightTypes.end(), info.dtype) == kWeightTypes.end()) {
    throw UserError(
        fmt::format("{}: tensor {} has dtype {}; weights in F32, F64, F16 and BF16 can be read, a quantised "
                    "checkpoint must be converted to one of them first",
                    file.path(), name, info.dtype));
  }
  AskForLargePages(out.data(), out.size_bytes());
  const std::size_t bad = ConvertTensor(file, info, out);
  if (bad < out.size()) {
    throw UserError(fmt::format("{}: tensor {} is not finite: element {} of {}", file.path(), name, bad, out.size()));
  }
}

void WeightFiles::Read(const std::string& name, std::span<float> out) const { ReadElements(name, out); }

void WeightFiles::Read(const std::string& name, std::span<Bfloat16> out) const { ReadElements(name, out); }

WeightMap ReadWeights(const std::string& folder, const std::string& stem) {
  const WeightFiles files(folder, stem);
  WeightMap weights;
  for (const std::string& name : files.Names()) {
    HostTensor tensor{files.ShapeOf(name), {}};
    tensor.data.resize(static_cast<std::size_t>(NumElements(tensor.shape)));
    files.Read(name, tensor.data);
    weights.emplace(name, std::move(tensor));
  }
  return weights;
}

}  // namespace spotlight
