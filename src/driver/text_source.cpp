#include "driver/text_source.hpp"

#include <filesystem>
#include <span>

#include "base/error.hpp"
#include "driver/model_files.hpp"
#include "io/json_file.hpp"
#include "io/missing_file.hpp"
#include "io/safetensors.hpp"

namespace spotlight {

TextTable::TextTable(const std::string& folder) : folder_(folder), vocabulary_(ReadVocabulary(folder)) {
  const std::string path = folder + "/text_embedding.safetensors";
  const SafetensorsFile file(path);
  const HostTensor table = file.Read("embed_tokens.weight");
  if (table.shape.size() != 2 || table.shape[0] != static_cast<Index>(vocabulary_.words.size())) {
    throw UserError(path + ": embed_tokens.weight is " + ToString(table.shape) + ", but vocabulary.json has " +
                    std::to_string(vocabulary_.words.size()) + " words");
  }
  width_ = table.shape[1];
  table_ = table.data;
}

std::vector<std::string> TextTable::files() const {
  return {folder_ + "/vocabulary.json", folder_ + "/text_embedding.safetensors"};
}

TextCondition TextTable::Embed(const std::string& text) const {
  TextCondition condition;
  for (const int id : vocabulary_.Tokenize(text)) {
    const auto row = table_.begin() + id * width_;
    condition.embedding.insert(condition.embedding.end(), row, row + width_);
    ++condition.tokens;
  }
  return condition;
}

void TextTable::Require(const PromptList& prompts) const {
  for (const Prompt& prompt : prompts.prompts) {
    try {
      Embed(prompt.text);
    } catch (const UserError& error) {
      throw UserError(prompts.path + ":" + std::to_string(prompt.line) + ": " + error.what());
    }
  }
}

TextCondition TextEmbeddings::Embed(const std::string& text) const {
  const std::string texts[] = {text};
  file_.RequireAll(texts, "a file with this text");
  return {file_.Tokens(text), file_.Read(text)};
}

void TextEmbeddings::Require(const PromptList& prompts) const {
  std::vector<std::string> texts;
  for (const Prompt& prompt : prompts.prompts) texts.push_back(prompt.text);
  file_.RequireAll(texts, prompts.path);
}

std::string EncodeCommand(const Config& config) {
  const std::string& output = config.prompts.embeddings;
  return "scripts/encode_prompts.py --model " + config.model.path + " --prompts " + config.prompts.train + " " +
         config.prompts.eval + " --negative \"" + config.sampler.negative_prompt + "\" --output " +
         (output.empty() ? "embeddings.safetensors" : output);
}

std::unique_ptr<TextSource> OpenTextSource(const Config& config) {
  const std::string& embeddings = config.prompts.embeddings;
  if (!embeddings.empty()) {
    if (std::filesystem::exists(embeddings)) return std::make_unique<TextEmbeddings>(embeddings);
    throw UserError("prompts/embeddings: " + MissingFileMessage(embeddings) + ". It is made with " +
                    EncodeCommand(config));
  }
  const std::string encoder = ModelPart(config.model.path, "text_encoder");
  if (std::filesystem::exists(encoder + "/vocabulary.json")) return std::make_unique<TextTable>(encoder);
  throw UserError("prompts/embeddings is not given, and " + encoder +
                  " has no vocabulary.json: a language model's embeddings are made beforehand, with " +
                  EncodeCommand(config));
}

}  // namespace spotlight
