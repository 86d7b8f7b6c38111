// Prompt files: `.txt`, one prompt a line, or `.jsonl`, GenEval's metadata lines
//   {"tag": "position", "prompt": "...", "include": [{"class": "dog", "count": 1}, {"class": "cat", "count": 1,
//    "position": ["left of", 0]}], "exclude": [...], "rewards": ["geneval"]}
// of which only "prompt" is required. (github.com/djghosh13/geneval, prompts/evaluation_metadata.jsonl.)
//
// Every mistake is a UserError "file:line: what is wrong". Blank lines are skipped and counted; of equal texts the
// first is kept and the others are counted.
#pragma once

#include <string>
#include <vector>

#include "base/prompt.hpp"

namespace spotlight {

struct PromptList {
  std::vector<Prompt> prompts;
  std::string path;
  std::string hash;  // 16 hex digits, of the file's bytes
  int blank_lines = 0;
  int duplicates = 0;
};

PromptList ReadPrompts(const std::string& path);

}  // namespace spotlight
