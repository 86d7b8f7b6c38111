#include "io/safetensors.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

#include "io/atomic_file.hpp"
#include "io/json_reading.hpp"

namespace spotlight {
namespace {

using nlohmann::json;
static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

constexpr std::size_t kPrefixBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

std::size_t BytesPerElement(const std::string& dtype) {
  static const std::map<std::string, std::size_t> kBytes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? 0 : found->second;
}

float FromBfloat16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

float FromHalf(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f;
  const int fraction = bits & 0x3ff;
  float magnitude = 0;
  if (exponent == 0x1f) {
    magnitude = fraction == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    magnitude = std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// from: raw little-endian elements, perhaps unaligned.
template <typename From, typename To, typename Convert>
void ConvertAll(const std::byte* from, std::span<To> to, Convert convert) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    From value;
    std::memcpy(&value, from + i * sizeof(From), sizeof(From));
    to[i] = static_cast<To>(convert(value));
  }
}

template <typename To>
void ConvertElements(const std::string& place, const std::string& dtype, const std::byte* from, std::span<To> to) {
  const auto same = [](auto value) { return value; };
  if (dtype == "F32") {
    ConvertAll<float>(from, to, same);
  } else if (dtype == "F64") {
    ConvertAll<double>(from, to, same);
  } else if (dtype == "BF16") {
    ConvertAll<std::uint16_t>(from, to, FromBfloat16);
  } else if (dtype == "F16") {
    ConvertAll<std::uint16_t>(from, to, FromHalf);
  } else if (dtype == "I64") {
    ConvertAll<std::int64_t>(from, to, same);
  } else if (dtype == "I32") {
    ConvertAll<std::int32_t>(from, to, same);
  } else {
    throw UserError(place + " has dtype " + dtype + "; F32, F64, F16, BF16, I64 and I32 can be read");
  }
}

// One entry of the header; `place` names file and tensor.
TensorInfo ParseTensor(const json& entry, const std::string& place, std::size_t data_bytes) {
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() || !entry.contains("shape") ||
      !entry["shape"].is_array() || !entry.contains("data_offsets") || !entry["data_offsets"].is_array() ||
      entry["data_offsets"].size() != 2) {
    throw UserError(place + " needs a \"dtype\", a \"shape\" and two \"data_offsets\"; the header has " + Brief(entry));
  }
  TensorInfo info;
  info.dtype = entry["dtype"].get<std::string>();
  const std::size_t element = BytesPerElement(info.dtype);
  if (element == 0) throw UserError(place + " has the unknown dtype \"" + info.dtype + "\"");
  std::size_t bytes = element;
  for (const json& size : entry["shape"]) {
    if (!size.is_number_unsigned() ||
        __builtin_mul_overflow(bytes, size.get<std::size_t>(), &bytes)) {  // silent wrap would pass the size check
      throw UserError(place + " has the impossible shape " + Brief(entry["shape"]));
    }
    info.shape.push_back(size.get<std::int64_t>());
  }
  for (const json& offset : entry["data_offsets"]) {
    if (!offset.is_number_unsigned()) {
      throw UserError(place + " has the impossible data_offsets " + Brief(entry["data_offsets"]));
    }
  }
  info.begin = entry["data_offsets"][0].get<std::size_t>();
  info.end = entry["data_offsets"][1].get<std::size_t>();
  if (info.end < info.begin || info.end - info.begin != bytes) {
    throw UserError(fmt::format("{}: data_offsets {} do not fit dtype {} and shape {}, which need {} bytes", place,
                                Brief(entry["data_offsets"]), info.dtype, ToString(info.shape), bytes));
  }
  if (info.end > data_bytes) {
    throw UserError(fmt::format("{}: truncated: its data needs {} bytes, the file has {}; download or copy it again",
                                place, info.end, data_bytes));
  }
  return info;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    throw UserError(errno == ENOENT ? MissingFileMessage(path)
                                    : fmt::format("{}: cannot read: {}", path, std::strerror(errno)));
  }
  struct stat status {};
  const bool regular = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<std::size_t>(status.st_size);
  void* map = MAP_FAILED;
  if (regular && size >= kPrefixBytes) map = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int code = errno;
  close(descriptor);
  if (!regular) throw UserError(path + ": not a file");
  if (size < kPrefixBytes) {
    throw UserError(
        fmt::format("{}: truncated: {} bytes, a safetensors file starts with {}", path, size, kPrefixBytes));
  }
  if (map == MAP_FAILED) throw FileError(fmt::format("{}: cannot map: {}", path, std::strerror(code)));
  map_ = static_cast<const std::byte*>(map);
  map_size_ = size;
  try {
    ParseHeader(size);
  } catch (...) {
    Unmap();
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { Unmap(); }

SafetensorsFile::SafetensorsFile(SafetensorsFile&& other) noexcept { *this = std::move(other); }

SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(tensors_, other.tensors_);
  std::swap(metadata_, other.metadata_);
  std::swap(map_, other.map_);
  std::swap(map_size_, other.map_size_);
  std::swap(data_begin_, other.data_begin_);
  return *this;
}

void SafetensorsFile::Unmap() {
  if (map_ != nullptr) munmap(const_cast<std::byte*>(map_), map_size_);
  map_ = nullptr;
}

void SafetensorsFile::ParseHeader(std::size_t file_size) {
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, map_, sizeof(header_bytes));
  if (header_bytes > file_size - kPrefixBytes) {
    throw UserError(fmt::format("{}: truncated, or not a safetensors file: its header needs {} bytes, the file has {}",
                                path_, header_bytes, file_size - kPrefixBytes));
  }
  if (header_bytes > kMaxHeaderBytes) {
    throw UserError(
        fmt::format("{}: its header has {} bytes; at most {} are allowed", path_, header_bytes, kMaxHeaderBytes));
  }
  data_begin_ = kPrefixBytes + header_bytes;
  const char* const text = reinterpret_cast<const char*>(map_) + kPrefixBytes;
  json header;
  try {
    header = json::parse(text, text + header_bytes);
  } catch (const json::exception& error) {
    throw UserError(fmt::format("{}: its header is not JSON ({})", path_, error.what()));
  }
  if (!header.is_object()) throw UserError(path_ + ": its header is not a JSON object");

  const std::size_t data_bytes = file_size - data_begin_;
  std::vector<std::pair<std::size_t, std::string>> order;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.items())
        metadata_[key] = value.is_string() ? value.get<std::string>() : value.dump();
      continue;
    }
    const TensorInfo info = ParseTensor(entry, path_ + ": tensor " + name, data_bytes);
    order.emplace_back(info.begin, name);
    tensors_[name] = info;
  }
  std::sort(order.begin(), order.end(), [this](const auto& a, const auto& b) {
    return std::pair(a.first, tensors_[a.second].end) < std::pair(b.first, tensors_[b.second].end);
  });
  std::size_t expected = 0;
  for (const auto& [begin, name] : order) {
    if (begin != expected) {
      throw UserError(fmt::format("{}: tensor {} starts at byte {}, which {} the tensor before it (ends at {})", path_,
                                  name, begin, begin < expected ? "overlaps" : "leaves a gap after", expected));
    }
    expected = tensors_[name].end;
  }
  if (expected != data_bytes) {
    throw UserError(fmt::format("{}: {} bytes follow the last tensor; the header does not belong to this data", path_,
                                data_bytes - expected));
  }
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> result;
  for (const auto& [name, info] : tensors_) result.push_back(name);
  return result;
}

const TensorInfo& SafetensorsFile::Info(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  const std::string nearest = NearestName(name, names());
  throw UserError(
      fmt::format("{}: has no tensor {}{}", path_, name, nearest.empty() ? "" : "; the nearest is " + nearest));
}

void SafetensorsFile::ReadFloats(const std::string& name, std::span<float> out) const {
  const TensorInfo& info = Info(name);
  SPOTLIGHT_REQUIRE(static_cast<std::int64_t>(out.size()) == NumElements(info.shape), path_ + ": tensor " + name);
  const std::byte* const from = map_ + data_begin_ + info.begin;
  if (info.dtype == "F32") {  // the common case, whole, at the speed of memory
    if (!out.empty()) std::memcpy(out.data(), from, out.size_bytes());
    return;
  }
  ConvertElements(path_ + ": tensor " + name, info.dtype, from, out);
}

void SafetensorsFile::ReadDoubles(const std::string& name, std::span<double> out) const {
  const TensorInfo& info = Info(name);
  SPOTLIGHT_REQUIRE(static_cast<std::int64_t>(out.size()) == NumElements(info.shape), path_ + ": tensor " + name);
  ConvertElements(path_ + ": tensor " + name, info.dtype, map_ + data_begin_ + info.begin, out);
}

HostTensor SafetensorsFile::Read(const std::string& name) const {
  HostTensor tensor{Info(name).shape, {}};
  tensor.data.resize(static_cast<std::size_t>(NumElements(tensor.shape)));
  ReadFloats(name, tensor.data);
  return tensor;
}

WeightMap ReadSafetensors(const std::string& path) {
  const SafetensorsFile file(path);
  WeightMap tensors;
  for (const std::string& name : file.names()) tensors.emplace(name, file.Read(name));
  return tensors;
}

namespace {

// The shards' tensors, after the index file: {"weight_map": {tensor: shard}}.
WeightMap ReadShards(const std::filesystem::path& folder, const std::string& index_path) {
  const json index = ReadJsonFile(index_path);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) {
    throw UserError(index_path + ": \"weight_map\" must be an object of tensor name -> shard file");
  }
  std::map<std::string, std::vector<std::string>> by_shard;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      throw UserError(fmt::format("{}: the shard of {} is {}; a file name is meant", index_path, tensor, Brief(shard)));
    }
    by_shard[shard.get<std::string>()].push_back(tensor);
  }
  WeightMap tensors;
  for (const auto& [shard, names] : by_shard) {
    const std::filesystem::path path = folder / shard;
    if (!std::filesystem::exists(path)) {
      throw UserError(fmt::format("{}: the shard {} is missing ({} of {} tensors are in it)", index_path, path.string(),
                                  names.size(), map->size()));
    }
    const SafetensorsFile file(path.string());
    for (const std::string& name : names) tensors.emplace(name, file.Read(name));
  }
  return tensors;
}

}  // namespace

WeightMap ReadWeights(const std::string& folder, const std::string& stem) {
  const std::filesystem::path base(folder);
  if (!std::filesystem::is_directory(base)) throw UserError(folder + ": no such folder; a model folder is meant");
  const std::string single = (base / (stem + ".safetensors")).string();
  const std::string index = single + ".index.json";
  WeightMap tensors;
  if (std::filesystem::exists(single)) {
    tensors = ReadSafetensors(single);
  } else if (std::filesystem::exists(index)) {
    tensors = ReadShards(base, index);
  } else {
    throw UserError(fmt::format("{}: no weights: neither {} nor {}.index.json is there", folder, single, single));
  }
  for (const auto& [name, tensor] : tensors) {
    const auto bad = std::find_if(tensor.data.begin(), tensor.data.end(), [](float x) { return !std::isfinite(x); });
    if (bad != tensor.data.end()) {
      throw UserError(fmt::format("{}: tensor {} is not finite: element {} of {} is {}", folder, name,
                                  bad - tensor.data.begin(), tensor.data.size(), *bad));
    }
  }
  return tensors;
}

void WriteSafetensors(const std::string& path, const WeightMap& tensors,
                      const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    SPOTLIGHT_REQUIRE(NumElements(tensor.shape) == static_cast<std::int64_t>(tensor.data.size()), name);
    const std::size_t end = offset + tensor.data.size() * sizeof(float);
    header[name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // aligns the data, as the format asks
  const std::uint64_t length = text.size();
  AtomicFile file(path);
  file.Write({reinterpret_cast<const char*>(&length), sizeof(length)});
  file.Write(text);
  for (const auto& [name, tensor] : tensors) {
    file.Write({reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size() * sizeof(float)});
  }
  file.Commit();
}

}  // namespace spotlight
