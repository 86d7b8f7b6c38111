#include "io/state_file.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include "base/error.hpp"
#include "io/atomic_file.hpp"
#include "io/h5.hpp"

namespace spotlight {
namespace {

template <typename Values>
std::int64_t Checksum(const Values& values) {
  const auto* const bytes = reinterpret_cast<const Bytef*>(values.data());
  return static_cast<std::int64_t>(crc32_z(0, bytes, values.size() * sizeof(values[0])));
}

void WriteEntry(H5File& file, const std::string& name, const std::string& text) {
  // As bytes: an HDF5 string would end at the first zero.
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(text.data());
  file.Write<std::uint8_t>(name, {static_cast<std::int64_t>(text.size())}, {bytes, text.size()});
  file.SetText(name, "encoding", "UTF-8");
}

template <typename T>
void WriteEntry(H5File& file, const std::string& name, const std::vector<T>& values) {
  file.Write<T>(name, {static_cast<std::int64_t>(values.size())}, values);
}

}  // namespace

StateFile StateFile::Load(const std::string& path) {
  StateFile state;
  state.path_ = path;
  const H5File file(path, H5File::Mode::kRead);
  const auto verify = [&](const std::string& name, const auto& values) {
    if (!file.HasAttribute(name, "crc32") || Checksum(values) != file.GetInt(name, "crc32")) {
      throw FileError(fmt::format("{}: {} is damaged: its checksum does not match", path, name));
    }
  };
  for (const std::string& name : file.ReadTexts("/names")) {
    const std::string dataset = "/state/" + name;
    Entry entry;
    if (file.HasAttribute(dataset, "encoding")) {
      const auto bytes = file.Read<std::uint8_t>(dataset);
      entry = std::string(bytes.begin(), bytes.end());
    } else {
      switch (file.TypeCode(dataset)) {
        case 'f':
          entry = file.Read<float>(dataset);
          break;
        case 'd':
          entry = file.Read<double>(dataset);
          break;
        case 'i':
          entry = file.Read<std::int64_t>(dataset);
          break;
        default:
          entry = file.Read<std::uint64_t>(dataset);
      }
    }
    std::visit([&](const auto& values) { verify(dataset, values); }, entry);
    state.entries_.emplace(name, std::move(entry));
  }
  return state;
}

void StateFile::Save(const std::string& path) const {
  const std::string aside = AsidePath(path);
  try {
    H5File file(aside, H5File::Mode::kCreate);
    std::vector<std::string> names;
    for (const auto& [name, entry] : entries_) {
      const std::string dataset = "/state/" + name;
      std::visit(
          [&](const auto& values) {
            WriteEntry(file, dataset, values);
            file.SetInt(dataset, "crc32", Checksum(values));
          },
          entry);
      names.push_back(name);
    }
    file.WriteTexts("/names", names);
    file.Close();
  } catch (...) {
    unlink(aside.c_str());
    throw;
  }
  CommitAside(aside, path);
}

void StateFile::Put(const std::string& name, std::span<const float> values) {
  entries_[name] = std::vector<float>(values.begin(), values.end());
}
void StateFile::Put(const std::string& name, std::span<const double> values) {
  entries_[name] = std::vector<double>(values.begin(), values.end());
}
void StateFile::Put(const std::string& name, std::span<const std::int64_t> values) {
  entries_[name] = std::vector<std::int64_t>(values.begin(), values.end());
}
void StateFile::Put(const std::string& name, std::span<const std::uint64_t> values) {
  entries_[name] = std::vector<std::uint64_t>(values.begin(), values.end());
}
void StateFile::Put(const std::string& name, std::string_view text) { entries_[name] = std::string(text); }

template <typename T>
const T& StateFile::Get(const std::string& name, const char* type) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw FileError(fmt::format("{}: has no {}", path_, name));
  const T* const values = std::get_if<T>(&found->second);
  if (values == nullptr) throw FileError(fmt::format("{}: {} is not of type {}", path_, name, type));
  return *values;
}

const std::vector<float>& StateFile::Floats(const std::string& name) const {
  return Get<std::vector<float>>(name, "float");
}
const std::vector<double>& StateFile::Doubles(const std::string& name) const {
  return Get<std::vector<double>>(name, "double");
}
const std::vector<std::int64_t>& StateFile::Ints(const std::string& name) const {
  return Get<std::vector<std::int64_t>>(name, "int64");
}
const std::vector<std::uint64_t>& StateFile::Uints(const std::string& name) const {
  return Get<std::vector<std::uint64_t>>(name, "uint64");
}
const std::string& StateFile::Text(const std::string& name) const { return Get<std::string>(name, "text"); }

}  // namespace spotlight
