// The safetensors format (github.com/huggingface/safetensors): 8-byte little-endian header length, JSON header
// {name: {dtype, shape, data_offsets}}, then the raw data.
//
// Reading maps the file and checks the whole header before anything is used: broken JSON, offsets that overlap, leave
// gaps or disagree with dtype and shape, and truncation are UserErrors that name the file and the tensor.
// Writing is fp32, aside + sync + rename: a FileError leaves the old file as it was.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.hpp"
#include "io/mapped_file.hpp"

namespace spotlight {

struct TensorInfo {
  std::string dtype;  // "F32", "BF16", ...
  Shape shape;
  std::size_t begin = 0;  // bytes [begin, end) of the data section
  std::size_t end = 0;
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  // A file that is in memory; `bytes` must outlive it, and messages call it `path`.
  SafetensorsFile(std::span<const std::byte> bytes, std::string path);

  const std::string& path() const { return path_; }
  std::vector<std::string> names() const;  // sorted
  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  bool Has(const std::string& name) const { return tensors_.contains(name); }
  const TensorInfo& Info(const std::string& name) const;  // UserError if absent, with the nearest name
  const std::map<std::string, std::string>& metadata() const { return metadata_; }

  // out.size() must be the number of elements. F64, F32, F16, BF16, I64, I32 are converted; any other dtype is a
  // UserError.
  void ReadFloats(const std::string& name, std::span<float> out) const;
  void ReadDoubles(const std::string& name, std::span<double> out) const;
  HostTensor Read(const std::string& name) const;

  // The tensor's elements as they are in the file, perhaps unaligned.
  std::span<const std::byte> Bytes(const TensorInfo& info) const;
  // Takes the pages of `bytes`, a part of what Bytes() gave, out of this process's memory until they are read again.
  void Release(std::span<const std::byte> bytes) const { map_.Release(bytes); }

 private:
  void ParseHeader();
  template <typename T>
  void ReadElements(const std::string& name, std::span<T> out) const;

  std::string path_;
  MappedFile map_;                    // of no bytes when the file is in memory
  std::span<const std::byte> bytes_;  // the whole file
  std::size_t data_begin_ = 0;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> metadata_;
};

// All tensors of one file.
WeightMap ReadSafetensors(const std::string& path);

// All tensors of a model folder as fp32 in memory (WeightFiles, io/weight_files.hpp).
WeightMap ReadWeights(const std::string& folder, const std::string& stem = "diffusion_pytorch_model");

// Writes fp32 tensors in name order.
void WriteSafetensors(const std::string& path, const WeightMap& tensors,
                      const std::map<std::string, std::string>& metadata);

}  // namespace spotlight
