// A closed vocabulary of words: the tokenizer of the small models that ship with the program.
//
// The id of a word is its index in `words`. Words are separated by white space; the first `prefix_dropped` ids of a
// text are dropped (the template prefix, as Qwen-Image does); the rest is padded with `pad` to `text_len`.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace spotlight {

struct Vocabulary {
  std::vector<std::string> words;
  int text_len = 7;
  int prefix_dropped = 3;
  int pad = 0;

  // [text_len] ids. UserError, naming the text, for a word outside the vocabulary (with the nearest known one), for
  // a text too long for text_len and for one that ends within the dropped prefix.
  std::vector<int> Tokenize(const std::string& text) const {
    std::vector<int> ids;
    std::istringstream stream(text);
    for (std::string word; stream >> word;) {
      const auto found = std::find(words.begin(), words.end(), word);
      if (found == words.end()) {
        const std::string nearest = NearestName(word, words);
        const std::string hint = nearest.empty()
                                     ? std::string("the model knows ") + std::to_string(words.size()) + " words only"
                                     : std::string("did you mean \"") + nearest + "\"?";
        throw UserError("prompt \"" + text + "\": the word \"" + word + "\" is not in the model's vocabulary; " + hint);
      }
      ids.push_back(static_cast<int>(found - words.begin()));
    }
    const int kept = static_cast<int>(ids.size()) - prefix_dropped;
    if (kept <= 0 || kept > text_len) {
      throw UserError("prompt \"" + text + "\" has " + std::to_string(ids.size()) + " words; the model takes " +
                      std::to_string(prefix_dropped + 1) + " to " + std::to_string(prefix_dropped + text_len) +
                      " (the first " + std::to_string(prefix_dropped) + " are a fixed prefix)");
    }
    ids.erase(ids.begin(), ids.begin() + prefix_dropped);
    ids.resize(static_cast<std::size_t>(text_len), pad);
    return ids;
  }
};

}  // namespace spotlight
