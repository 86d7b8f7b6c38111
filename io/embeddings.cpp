#include "io/embeddings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.hpp"
#include "base/prompt.hpp"
#include "io/elements.hpp"

namespace spotlight {
namespace {

constexpr std::size_t kKeyDigits = 16;

std::vector<SafetensorsFile> OpenParts(const std::string& path) {
  std::vector<std::string> names;
  if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      if (entry.path().extension() == ".safetensors" && entry.path().filename().string().front() != '.') {
        names.push_back(entry.path().string());
      }
    }
    if (names.empty()) throw UserError(path + ": has no *.safetensors; a folder of embedding files is meant");
    std::sort(names.begin(), names.end());
  } else {
    names.push_back(path);
  }
  std::vector<SafetensorsFile> parts;
  for (const std::string& name : names) parts.emplace_back(name);
  return parts;
}

std::string MetadataOr(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  return found == file.metadata().end() ? "" : found->second;
}

void CheckFormat(const SafetensorsFile& file) {
  const std::string format = MetadataOr(file, "format"), version = MetadataOr(file, "version");
  if (format != "spotlight-embeddings" || version != "1") {
    throw UserError(
        fmt::format("{}: its format is \"{}\", version \"{}\"; \"spotlight-embeddings\", version \"1\" is meant, as "
                    "scripts/encode_prompts.py writes it",
                    file.path(), format, version));
  }
}

// Nothing if `name` is not 16 lower-case hexadecimal digits.
std::optional<std::uint64_t> ParseKey(std::string_view name) {
  if (name.size() != kKeyDigits) return std::nullopt;
  std::uint64_t key = 0;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    key = key << 4 | static_cast<std::uint64_t>(digit ? c - '0' : c - 'a' + 10);
  }
  return key;
}

}  // namespace

std::string EmbeddingKey(std::string_view text) { return fmt::format("{:016x}", PromptId(std::string(text))); }

EmbeddingFile::EmbeddingFile(const std::string& path) : EmbeddingFile(OpenParts(path)) { path_ = path; }

EmbeddingFile::EmbeddingFile(std::vector<SafetensorsFile> parts) : parts_(std::move(parts)) {
  SPOTLIGHT_REQUIRE(!parts_.empty(), "no files");
  path_ = parts_[0].path();
  for (std::size_t part = 0; part < parts_.size(); ++part) AddPart(part);
  if (entries_.empty()) throw UserError(path_ + ": holds no embedding");
}

void EmbeddingFile::AddPart(std::size_t part) {
  const SafetensorsFile& file = parts_[part];
  CheckFormat(file);
  for (const char* key : {"encoder", "max_length"}) {
    const std::string first = MetadataOr(parts_[0], key), own = MetadataOr(file, key);
    if (own != first) {
      throw UserError(fmt::format("{}: \"{}\" is \"{}\", but \"{}\" in {}; files of one encoding are meant",
                                  file.path(), key, own, first, parts_[0].path()));
    }
  }
  entries_.reserve(entries_.size() + file.tensors().size());
  for (const auto& [name, info] : file.tensors()) {
    const std::optional<std::uint64_t> key = ParseKey(name);
    if (!key) {
      throw UserError(fmt::format("{}: tensor \"{}\": a name of {} lower-case hexadecimal digits is meant", file.path(),
                                  name, kKeyDigits));
    }
    if (info.dtype != "BF16" && info.dtype != "F32") {
      throw UserError(
          fmt::format("{}: tensor {} has dtype {}; BF16 and F32 are allowed", file.path(), name, info.dtype));
    }
    if (info.shape.size() != 2 || info.shape[0] < 1 || info.shape[1] < 1) {
      throw UserError(
          fmt::format("{}: tensor {} has shape {}; [tokens, width] is meant", file.path(), name, ToString(info.shape)));
    }
    if (width_ == 0) width_ = info.shape[1];
    if (info.shape[1] != width_) {
      throw UserError(fmt::format("{}: tensor {} has width {}, the tensors before it {}; one encoder gives one width",
                                  file.path(), name, info.shape[1], width_));
    }
    entries_.emplace(*key, Entry{part, &info});
  }
}

std::vector<std::string> EmbeddingFile::files() const {
  std::vector<std::string> paths;
  for (const SafetensorsFile& part : parts_) paths.push_back(part.path());
  return paths;
}

bool EmbeddingFile::Has(std::string_view text) const { return entries_.contains(PromptId(std::string(text))); }

const EmbeddingFile::Entry& EmbeddingFile::Find(std::string_view text) const {
  const auto found = entries_.find(PromptId(std::string(text)));
  if (found == entries_.end()) {
    throw UserError(fmt::format("{}: has no embedding of \"{}\" (tensor {})", path_, text, EmbeddingKey(text)));
  }
  return found->second;
}

Index EmbeddingFile::Tokens(std::string_view text) const { return Find(text).info->shape[0]; }

std::vector<float> EmbeddingFile::Read(std::string_view text) const {
  const Entry& entry = Find(text);
  const SafetensorsFile& file = parts_[entry.part];
  std::vector<float> values(static_cast<std::size_t>(NumElements(entry.info->shape)));
  ConvertElements(entry.info->dtype, file.Bytes(*entry.info).data(), std::span(values));
  const std::size_t bad = FindNotFinite(values);
  if (bad < values.size()) {
    throw UserError(fmt::format("{}: tensor {} of the prompt \"{}\" is not finite: element {} of {} is {}", file.path(),
                                EmbeddingKey(text), text, bad, values.size(), values[bad]));
  }
  return values;
}

std::vector<std::string> EmbeddingFile::Missing(std::span<const std::string> texts) const {
  std::vector<std::string> missing;
  std::unordered_set<std::string_view> seen;
  for (const std::string& text : texts) {
    if (!Has(text) && seen.insert(text).second) missing.push_back(text);
  }
  return missing;
}

void EmbeddingFile::RequireAll(std::span<const std::string> texts, const std::string& prompt_file) const {
  const std::vector<std::string> missing = Missing(texts);
  if (!missing.empty()) throw UserError(MissingEmbeddingsMessage(path_, missing, texts.size(), prompt_file));
}

std::string MissingEmbeddingsMessage(const std::string& path, std::span<const std::string> missing, std::size_t total,
                                     const std::string& prompt_file) {
  SPOTLIGHT_REQUIRE(!missing.empty(), path);
  return fmt::format(
      "{}: {} of {} prompts have no embedding, the first is \"{}\"; make them with: scripts/encode_prompts.py --model "
      "MODEL --prompts {} --output {}",
      path, missing.size(), total, missing.front(), prompt_file, path);
}

}  // namespace spotlight
