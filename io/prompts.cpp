#include "io/prompts.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "io/atomic_file.hpp"
#include "io/json_reading.hpp"
#include "io/missing_file.hpp"

namespace spotlight {
namespace {

using nlohmann::json;

constexpr std::array<const char*, 4> kRelations = {"left of", "right of", "above", "below"};
constexpr int kMaxCount = 1000;

std::string TextOf(const json& object, const std::string& place, const char* key, bool required) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) {
    if (required) throw UserError(fmt::format("{}: no \"{}\"", place, key));
    return "";
  }
  if (!found->is_string())
    throw UserError(fmt::format("{}: \"{}\" is {}; a string is meant", place, key, Brief(*found)));
  std::string text = found->get<std::string>();
  if (required && text.find_first_not_of(" \t") == std::string::npos) {
    throw UserError(fmt::format("{}: \"{}\" is empty", place, key));
  }
  return text;
}

const json& ListOf(const json& object, const std::string& place, const char* key) {
  static const json kEmpty = json::array();
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return kEmpty;
  if (!found->is_array()) throw UserError(fmt::format("{}: \"{}\" is {}; a list is meant", place, key, Brief(*found)));
  return *found;
}

// `earlier`: clauses of the same list that precede this one; a position refers to one of them.
Clause ParseClause(const json& value, const std::string& place, std::size_t earlier) {
  if (!value.is_object()) {
    throw UserError(fmt::format("{} is {}; an object with \"class\" and \"count\" is meant", place, Brief(value)));
  }
  Clause clause;
  clause.object_class = TextOf(value, place, "class", true);
  clause.count = IntOr(value, place, "count", 1, 1, kMaxCount);
  clause.color = TextOf(value, place, "color", false);
  const auto position = value.find("position");
  if (position == value.end() || position->is_null()) return clause;
  if (!position->is_array() || position->size() != 2 || !(*position)[0].is_string() ||
      !(*position)[1].is_number_integer()) {
    throw UserError(fmt::format("{}: \"position\" is {}; [relation, index] is meant, as [\"left of\", 0]", place,
                                Brief(*position)));
  }
  clause.relation = (*position)[0].get<std::string>();
  if (std::find(kRelations.begin(), kRelations.end(), clause.relation) == kRelations.end()) {
    throw UserError(fmt::format("{}: the relation \"{}\" is unknown; {} are allowed", place, clause.relation,
                                fmt::join(kRelations, ", ")));
  }
  const auto& index = (*position)[1];
  if (!index.is_number_unsigned() || index.get<std::uint64_t>() >= earlier) {
    throw UserError(
        fmt::format("{}: the position index {} is out of range; it must name one of the {} clauses before it", place,
                    index.dump(), earlier));
  }
  clause.relation_target = index.get<int>();
  return clause;
}

std::vector<Clause> ParseClauses(const json& object, const std::string& place, const char* key) {
  std::vector<Clause> clauses;
  for (const json& value : ListOf(object, place, key)) {
    clauses.push_back(ParseClause(value, fmt::format("{}: {}[{}]", place, key, clauses.size()), clauses.size()));
  }
  return clauses;
}

Prompt ParseGeneval(const std::string& line, const std::string& place) {
  json object;
  try {
    object = json::parse(line);
  } catch (const json::exception&) {
    const std::string start = line.size() > 40 ? line.substr(0, 40) + "..." : line;
    throw UserError(fmt::format("{}: not JSON: {}", place, start));
  }
  if (!object.is_object()) {
    throw UserError(fmt::format("{}: {} is not a JSON object with a \"prompt\"", place, Brief(object)));
  }
  Prompt prompt;
  prompt.text = TextOf(object, place, "prompt", true);
  prompt.tag = TextOf(object, place, "tag", false);
  prompt.include = ParseClauses(object, place, "include");
  prompt.exclude = ParseClauses(object, place, "exclude");
  for (const json& reward : ListOf(object, place, "rewards")) {
    if (!reward.is_string()) {
      throw UserError(fmt::format("{}: \"rewards\" holds {}; names of reward terms are meant", place, Brief(reward)));
    }
    prompt.rewards.push_back(reward.get<std::string>());
  }
  return prompt;
}

std::string Stripped(const std::string& line) {
  const char* const space = " \t\r";
  const std::size_t first = line.find_first_not_of(space);
  return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(space) - first + 1);
}

}  // namespace

PromptList ReadPrompts(const std::string& path) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension != ".txt" && extension != ".jsonl") {
    throw UserError(
        fmt::format("{}: a prompt file ends in .txt (one prompt a line) or .jsonl (GenEval metadata), not {}", path,
                    extension.empty() ? "nothing" : "\"" + extension + "\""));
  }
  if (!std::filesystem::is_regular_file(path)) throw UserError(MissingFileMessage(path));
  const std::string bytes = ReadWholeFile(path);

  PromptList list;
  list.path = path;
  list.hash = fmt::format("{:016x}", PromptId(bytes));
  std::set<std::string> seen;
  int number = 0;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string line = Stripped(bytes.substr(begin, end - begin));
    begin = end + 1;
    ++number;
    if (line.empty()) {
      ++list.blank_lines;
      continue;
    }
    Prompt prompt;
    if (extension == ".jsonl") {
      prompt = ParseGeneval(line, fmt::format("{}:{}", path, number));
    } else {
      prompt.text = line;
    }
    prompt.id = PromptId(prompt.text);
    prompt.line = number;
    if (seen.insert(prompt.text).second) {
      list.prompts.push_back(std::move(prompt));
    } else {
      ++list.duplicates;
    }
  }
  if (list.prompts.empty()) throw UserError(path + ": no prompts: the file is empty or has blank lines only");
  return list;
}

}  // namespace spotlight
