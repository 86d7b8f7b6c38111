// The part of HDF5 that this program uses: one open file, objects addressed by path ("/history/step").
//
// Arrays are row-major. Strings are UTF-8. Every HDF5 failure is a FileError with the file, the object and HDF5's own
// reason; HDF5 prints nothing itself. File locking is off: readers must not stop the run, and many parallel file
// systems lack it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.hpp"

namespace spotlight {

// Element types: float, double, int64, uint64, uint8 (instantiated in h5.cpp).
class H5File {
 public:
  enum class Mode { kCreate, kReadWrite, kRead };  // kCreate replaces an existing file

  H5File(const std::string& path, Mode mode);
  ~H5File();
  H5File(const H5File&) = delete;
  H5File& operator=(const H5File&) = delete;
  void Close();  // reports what the destructor would swallow; call it after writing

  bool Has(const std::string& object) const;
  std::vector<std::string> Children(const std::string& group) const;  // sorted names
  void CreateGroup(const std::string& group);
  void Remove(const std::string& object);

  template <typename T>
  void Write(const std::string& dataset, const Shape& shape, std::span<const T> values);
  template <typename T>
  std::vector<T> Read(const std::string& dataset) const;  // converts between number types
  Shape Dimensions(const std::string& dataset) const;
  // 'f': float, 'd': double, 'i': signed, 'u': unsigned, 's': text
  char TypeCode(const std::string& dataset) const;

  void WriteTexts(const std::string& dataset, const std::vector<std::string>& values);  // [n] strings
  std::vector<std::string> ReadTexts(const std::string& dataset) const;

  // A series is a 1-D dataset that grows; rows it lacks read as `fill`.
  template <typename T>
  void CreateSeries(const std::string& dataset, T fill);
  template <typename T>
  void Append(const std::string& dataset, std::span<const T> values);
  void Resize(const std::string& dataset, std::int64_t length);  // of a series

  // Attributes of a group or dataset; "/" is the file itself. An existing attribute is replaced.
  void SetText(const std::string& object, const std::string& name, const std::string& value);
  void SetInt(const std::string& object, const std::string& name, std::int64_t value);
  std::vector<std::string> AttributeNames(const std::string& object) const;  // sorted
  bool HasAttribute(const std::string& object, const std::string& name) const;
  std::string GetText(const std::string& object, const std::string& name) const;
  std::int64_t GetInt(const std::string& object, const std::string& name) const;

  // Dimension scales (HDF5 high-level library, H5DS): xarray and netCDF read them as coordinates.
  void MakeScale(const std::string& dataset, const std::string& label);
  void AttachScale(const std::string& dataset, const std::string& scale, int dimension);

 private:
  std::string path_;
  std::int64_t id_ = -1;
};

}  // namespace spotlight
