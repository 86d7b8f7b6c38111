// Prompt embeddings made ahead of the run by scripts/encode_prompts.py, mapped from one file or a folder of parts.
//
// The format is safetensors. Metadata: "format": "spotlight-embeddings", "version": "1", "encoder": the text encoder's
// name, "max_length": the tokens that prompts were cut to. One tensor per prompt: [tokens, width], BF16 or F32, the
// real tokens only, so that its length is its mask. The tensor's name is the prompt's key: FNV-1a, 64 bits, over the
// UTF-8 bytes of the text (hash = 0xcbf29ce484222325; for each byte: hash ^= byte; hash *= 0x100000001b3 modulo 2^64;
// base/prompt.hpp), as 16 lower-case hexadecimal digits.
//
// A folder is read as all its *.safetensors, each of this format; if a prompt is in several, the first by name counts.
// All mistakes are UserErrors that name the file, the tensor and what is allowed: another format or version, encoders
// or widths that differ, a tensor of another shape or dtype, values that are not finite.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/tensor.hpp"
#include "io/safetensors.hpp"

namespace spotlight {

class EmbeddingFile {
 public:
  explicit EmbeddingFile(const std::string& path);             // a file or a folder
  explicit EmbeddingFile(std::vector<SafetensorsFile> parts);  // at least one

  Index width() const { return width_; }                // numbers per token
  std::size_t size() const { return entries_.size(); }  // prompts
  std::vector<std::string> files() const;               // its parts
  bool Has(std::string_view text) const;
  Index Tokens(std::string_view text) const;
  // [Tokens(text), width()], row-major.
  std::vector<float> Read(std::string_view text) const;

  // Those of `texts` without an embedding, in their order, each once.
  std::vector<std::string> Missing(std::span<const std::string> texts) const;
  // UserError with MissingEmbeddingsMessage if there are any.
  void RequireAll(std::span<const std::string> texts, const std::string& prompt_file) const;

 private:
  struct Entry {
    std::size_t part = 0;
    const TensorInfo* info = nullptr;  // of parts_[part]; nodes of its map stay where they are
  };

  void AddPart(std::size_t part);
  const Entry& Find(std::string_view text) const;

  std::string path_;
  std::vector<SafetensorsFile> parts_;
  std::unordered_map<std::uint64_t, Entry> entries_;
  Index width_ = 0;
};

// "0123456789abcdef": the tensor's name for a prompt.
std::string EmbeddingKey(std::string_view text);

// How many of `total` prompts lack an embedding in `path`, the first of them, and the command that makes them.
// `missing` is not empty.
std::string MissingEmbeddingsMessage(const std::string& path, std::span<const std::string> missing, std::size_t total,
                                     const std::string& prompt_file);

}  // namespace spotlight
