// A text condition with its GenEval metadata (github.com/djghosh13/geneval, prompts/*.jsonl).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spotlight {

// One {class, count, color?, position?} object of GenEval's include and exclude lists.
struct Clause {
  std::string object_class;
  int count = 1;
  std::string color;         // empty: any colour
  std::string relation;      // "left of" | "right of" | "above" | "below"; empty: none
  int relation_target = -1;  // index of the earlier include clause that `relation` refers to
};

struct Prompt {
  std::uint64_t id = 0;  // content hash of `text`: keys the noise, so it does not depend on the file's order
  std::string text;
  std::string tag;  // GenEval task, e.g. "counting"; empty for a plain text line
  std::vector<Clause> include;
  std::vector<Clause> exclude;
  std::vector<std::string> rewards;  // reward terms that score this prompt; empty: all
  int line = 0;                      // where it stood in its file, from 1
};

// FNV-1a over the bytes of `text`.
std::uint64_t PromptId(const std::string& text);

}  // namespace spotlight
