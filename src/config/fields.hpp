// The field list: every key of the input once, bound to a member of a Config.
//
// Parsing, range checks, `--describe`, the dump and the comparison of two Configs are loops over this list, so that
// help, checks and behaviour cannot disagree.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/config.hpp"

namespace spotlight {

// Whether a resumed run may change the value.
//   kFixedOnResume  it decides which samples are drawn or what is learnt: a change would make two runs of one
//   kMayChange      length, places, memory, prices and reporting; and paths, because a folder may move: whoever
//                   resumes compares the contents
enum class OnResume { kFixedOnResume, kMayChange };

struct Field {
  std::string key;
  OnResume on_resume = OnResume::kFixedOnResume;
  std::string allowed;   // "1 .. 1000", "linear | qwen"; empty: any text
  std::string help;      // with the unit, where there is one
  bool is_path = false;  // names something that is read: resolved against the input's folder

  // Sets the member; returns what is wrong with the text ("is not a whole number") or "" if the member was set.
  std::function<std::string(const std::string& text)> set;
  // The member as text, from which `set` restores it exactly.
  std::function<std::string()> get;
};

struct Section {
  std::string name;
  std::string help;
  std::vector<Field> fields;
};

// The list, bound to `config`, which must outlive it. [notes] is not in it.
std::vector<Section> FieldList(Config& config);

}  // namespace spotlight
