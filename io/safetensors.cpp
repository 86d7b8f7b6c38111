#include "io/safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "io/atomic_file.hpp"
#include "io/elements.hpp"
#include "io/json_reading.hpp"

namespace spotlight {
namespace {

using nlohmann::json;

constexpr std::size_t kPrefixBytes = 8;
constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

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
  auto bytes = static_cast<Index>(element);
  for (const json& size : entry["shape"]) {
    if (!size.is_number_unsigned() || size.get<std::uint64_t>() > std::uint64_t{std::numeric_limits<Index>::max()} ||
        __builtin_mul_overflow(bytes, size.get<Index>(), &bytes)) {  // silent wrap would pass the size check
      throw UserError(place + " has the impossible shape " + Brief(entry["shape"]));
    }
    info.shape.push_back(size.get<Index>());
  }
  for (const json& offset : entry["data_offsets"]) {
    if (!offset.is_number_unsigned()) {
      throw UserError(place + " has the impossible data_offsets " + Brief(entry["data_offsets"]));
    }
  }
  info.begin = entry["data_offsets"][0].get<std::size_t>();
  info.end = entry["data_offsets"][1].get<std::size_t>();
  if (info.end < info.begin || info.end - info.begin != static_cast<std::size_t>(bytes)) {
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

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), map_(path), bytes_(map_.bytes()) {
  ParseHeader();
}

SafetensorsFile::SafetensorsFile(std::span<const std::byte> bytes, std::string path)
    : path_(std::move(path)), bytes_(bytes) {
  ParseHeader();
}

void SafetensorsFile::ParseHeader() {
  if (bytes_.size() < kPrefixBytes) {
    throw UserError(
        fmt::format("{}: truncated: {} bytes, a safetensors file starts with {}", path_, bytes_.size(), kPrefixBytes));
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes_.data(), sizeof(header_bytes));
  if (header_bytes > bytes_.size() - kPrefixBytes) {
    throw UserError(fmt::format("{}: truncated, or not a safetensors file: its header needs {} bytes, the file has {}",
                                path_, header_bytes, bytes_.size() - kPrefixBytes));
  }
  if (header_bytes > kMaxHeaderBytes) {
    throw UserError(
        fmt::format("{}: its header has {} bytes; at most {} are allowed", path_, header_bytes, kMaxHeaderBytes));
  }
  data_begin_ = kPrefixBytes + header_bytes;
  const char* const text = reinterpret_cast<const char*>(bytes_.data()) + kPrefixBytes;
  const json header = ParseJsonObject({text, header_bytes}, path_ + ": its header");

  const std::size_t data_bytes = bytes_.size() - data_begin_;
  std::vector<std::pair<std::size_t, std::string>> order;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) {
        throw UserError(fmt::format("{}: \"__metadata__\" is {}; an object of strings is meant", path_, Brief(entry)));
      }
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

std::span<const std::byte> SafetensorsFile::Bytes(const TensorInfo& info) const {
  return bytes_.subspan(data_begin_ + info.begin, info.end - info.begin);
}

template <typename T>
void SafetensorsFile::ReadElements(const std::string& name, std::span<T> out) const {
  const TensorInfo& info = Info(name);
  SPOTLIGHT_REQUIRE(static_cast<Index>(out.size()) == NumElements(info.shape), path_ + ": tensor " + name);
  if (!ConvertElements(info.dtype, Bytes(info).data(), out)) {
    throw UserError(fmt::format("{}: tensor {} has dtype {}; F32, F64, F16, BF16, I64 and I32 can be read", path_, name,
                                info.dtype));
  }
}

void SafetensorsFile::ReadFloats(const std::string& name, std::span<float> out) const { ReadElements(name, out); }

void SafetensorsFile::ReadDoubles(const std::string& name, std::span<double> out) const { ReadElements(name, out); }

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
