// Named arrays in one HDF5 file, each with a CRC-32: the content of a checkpoint.
//
// Every array is 1-D and keeps its bits. Load verifies each checksum and throws a FileError that names the file and the
// dataset that is damaged. Save writes aside, syncs and renames.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace spotlight {

class StateFile {
 public:
  static StateFile Load(const std::string& path);
  void Save(const std::string& path) const;

  // Names may hold '/' (HDF5 groups). An array of the same name is replaced.
  void Put(const std::string& name, std::span<const float> values);
  void Put(const std::string& name, std::span<const double> values);
  void Put(const std::string& name, std::span<const std::int64_t> values);
  void Put(const std::string& name, std::span<const std::uint64_t> values);
  void Put(const std::string& name, std::string_view text);

  // FileError (with the file that was loaded) if there is no array of that name and type.
  const std::vector<float>& Floats(const std::string& name) const;
  const std::vector<double>& Doubles(const std::string& name) const;
  const std::vector<std::int64_t>& Ints(const std::string& name) const;
  const std::vector<std::uint64_t>& Uints(const std::string& name) const;
  const std::string& Text(const std::string& name) const;
  bool Has(const std::string& name) const { return entries_.contains(name); }

 private:
  using Entry = std::variant<std::vector<float>, std::vector<double>, std::vector<std::int64_t>,
                             std::vector<std::uint64_t>, std::string>;
  template <typename T>
  const T& Get(const std::string& name, const char* type) const;

  std::string path_ = "a state not yet saved";
  std::map<std::string, Entry> entries_;
};

}  // namespace spotlight
