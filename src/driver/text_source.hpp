// Where the text conditions of a run come from: a table of words in the model folder (small models), or a file of
// embeddings that scripts/encode_prompts.py made with the model's text encoder.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/vocabulary.hpp"
#include "config/config.hpp"
#include "io/embeddings.hpp"
#include "io/prompts.hpp"
#include "model/guided_velocity.hpp"

namespace spotlight {

class TextSource {
 public:
  virtual ~TextSource() = default;

  virtual Index width() const = 0;
  // That were read.
  virtual std::vector<std::string> files() const = 0;
  // UserError for a text that has no condition.
  virtual TextCondition Embed(const std::string& text) const = 0;
  // UserError, naming file and line, unless all prompts of the list have a condition.
  virtual void Require(const PromptList& prompts) const = 0;
};

// A model folder's text encoder: a vocabulary and an embedding table [words, width].
class TextTable : public TextSource {
 public:
  explicit TextTable(const std::string& folder);
  Index width() const override { return width_; }
  std::vector<std::string> files() const override;
  TextCondition Embed(const std::string& text) const override;
  void Require(const PromptList& prompts) const override;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  std::string folder_;
  Vocabulary vocabulary_;
  Index width_ = 0;
  std::vector<float> table_;
};

class TextEmbeddings : public TextSource {
 public:
  explicit TextEmbeddings(const std::string& path) : path_(path), file_(path) {}
  Index width() const override { return file_.width(); }
  std::vector<std::string> files() const override { return file_.files(); }
  TextCondition Embed(const std::string& text) const override;
  void Require(const PromptList& prompts) const override;

 private:
  std::string path_;
  EmbeddingFile file_;
};

// The command that makes the embeddings which `config` asks for.
std::string EncodeCommand(const Config& config);

// What `config` names: prompts/embeddings, or else the table in the model folder's part `text_encoder`.
std::unique_ptr<TextSource> OpenTextSource(const Config& config);

}  // namespace spotlight
