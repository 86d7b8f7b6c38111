// Any bytes are an embedding file, or a UserError; prompts that are in the corpus can be read from it.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/embeddings.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spotlight;
  static const std::vector<std::string> kPrompts = {"", "a", "a photo of a bench"};
  try {
    std::vector<SafetensorsFile> parts;
    parts.emplace_back(std::as_bytes(std::span(data, size)), "fuzz.safetensors");
    const EmbeddingFile file(std::move(parts));
    if (file.size() < 1 || file.width() < 1) std::abort();
    for (const std::string& prompt : kPrompts) {
      if (!file.Has(prompt)) continue;
      const std::vector<float> values = file.Read(prompt);
      if (static_cast<Index>(values.size()) != file.Tokens(prompt) * file.width()) std::abort();
    }
    file.RequireAll(kPrompts, "prompts.txt");
  } catch (const UserError&) {
  }
  return 0;
}
