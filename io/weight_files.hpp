// The weights of a model folder as diffusers writes them: <stem>.safetensors, or the shards that
// <stem>.safetensors.index.json names. Number of shards, dtypes, order and alignment come from the files.
//
// The files are mapped and each tensor is converted in a stream straight into its destination; what has been read is
// given back to the system at once, so the memory in use is that of the destinations and a few MiB. Opening parses and
// checks all headers and reads no weights. One thread: four fifths of the time the system clears the destinations' new
// memory, and a second thread gained nothing.
//
// All mistakes are UserErrors that name the file and the tensor: a folder without weights, a shard that is missing or
// outside the folder, a tensor that the index lists and its shard lacks, a dtype other than F64, F32, F16 and BF16
// (quantised checkpoints), a value that is not finite. Tensors of a shard that the index does not list, and the index's
// total_size, are ignored.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor_source.hpp"
#include "io/safetensors.hpp"

namespace spotlight {

class WeightFiles : public TensorSource {
 public:
  explicit WeightFiles(const std::string& folder, const std::string& stem = "diffusion_pytorch_model");

  const std::string& place() const override { return folder_; }
  std::vector<std::string> Names() const override;  // sorted
  bool Has(const std::string& name) const override { return file_of_.contains(name); }
  Shape ShapeOf(const std::string& name) const override;  // UserError if absent, with the nearest name

  // out.size() is the number of elements. To Bfloat16: BF16 is copied, the rest rounded to nearest, ties to even; a
  // value beyond bfloat16's range is not finite.
  void Read(const std::string& name, std::span<float> out) const override;
  void Read(const std::string& name, std::span<Bfloat16> out) const override;

  const std::vector<SafetensorsFile>& files() const { return files_; }

 private:
  void OpenShards(const std::string& index_path);
  const SafetensorsFile& FileOf(const std::string& name) const;
  template <typename T>
  void ReadElements(const std::string& name, std::span<T> out) const;

  std::string folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;  // tensor -> index into files_
};

// Tensor -> shard of an index file's text, {"weight_map": {tensor: shard}}; every shard is the plain name of a file.
// `place` starts the messages.
std::map<std::string, std::string> ParseWeightMap(std::string_view text, const std::string& place);

}  // namespace spotlight
