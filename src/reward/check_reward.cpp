// CheckReward of reward.hpp: everything about the reward that a user can get wrong, found before any work.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "reward/reward.hpp"
#include "reward/shape_world.hpp"

namespace spotlight {
namespace {

std::string Join(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

// "; did you mean x?" or nothing, then the list of what is allowed.
std::string Suggest(const std::string& name, const std::vector<std::string>& allowed) {
  const std::string nearest = NearestName(name, allowed);
  return fmt::format("{}; allowed: {}", nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest),
                     Join(allowed));
}

std::vector<std::string> TermNames() {
  std::vector<std::string> names;
  for (const RewardTerm& term : RewardTerms()) names.push_back(term.name);
  return names;
}

void CheckTerms(const RewardConfig& config, bool has_detector, const std::string& detector_path) {
  const std::vector<WeightedName>& terms = config.terms;
  if (terms.empty()) throw UserError("reward/terms is empty; name at least one of " + Join(TermNames()));
  std::set<std::string> seen;
  double sum = 0;
  bool needs_command = false;
  for (const auto& [name, weight] : terms) {
    const RewardTerm* term = FindRewardTerm(name);
    if (term == nullptr) {
      throw UserError(fmt::format("reward/terms: unknown term {}{} (spotlight --list rewards explains them)", name,
                                  Suggest(name, TermNames())));
    }
    if (!seen.insert(name).second) {
      throw UserError(fmt::format("reward/terms: {} is named twice; give it one weight", name));
    }
    if (!std::isfinite(weight) || weight < 0) {
      throw UserError(fmt::format("reward/terms: the weight {} of {} must be a number >= 0", weight, name));
    }
    sum += weight;
    if (term->needs_detector && !has_detector) {
      throw UserError(
          fmt::format("reward/terms: {} needs the shape detector, but there is no {}; set reward/detector "
                      "to a detector.safetensors, or choose other terms",
                      name, detector_path));
    }
    needs_command = needs_command || term->needs_command;
    if (term->needs_command && config.command.empty()) {
      throw UserError(
          fmt::format("reward/terms: {} needs a program that judges the images; set reward/command to the shell "
                      "command that runs it (scripts/rewards/README.md)",
                      name));
    }
  }
  if (!config.command.empty() && !needs_command) {
    throw UserError(
        fmt::format("reward/command = {}: no term in reward/terms asks it; add command:1.0 to the terms, or leave "
                    "the command out",
                    config.command));
  }
  if (sum == 0) {
    throw UserError(
        "reward/terms: the weights sum to 0, so every image would score the same; give one term a weight > 0");
  }
}

// `name` must be among `known`, or the detector would silently score 0.
void CheckKnown(const std::string& place, const char* what, const std::string& name,
                const std::vector<std::string>& known) {
  if (std::ranges::find(known, name) != known.end()) return;
  throw UserError(fmt::format("{}: the shape detector knows no {} \"{}\"{}", place, what, name, Suggest(name, known)));
}

void CheckClauses(const std::string& place, const Prompt& prompt) {
  for (const auto* clauses : {&prompt.include, &prompt.exclude}) {
    for (const Clause& clause : *clauses) {
      CheckKnown(place, "class", clause.object_class, ShapeNames());
      if (!clause.color.empty()) CheckKnown(place, "color", clause.color, ColorNames());
    }
  }
}

void CheckPrompt(const std::vector<WeightedName>& terms, const Prompt& prompt, const std::string& place) {
  std::vector<std::string> configured;
  configured.reserve(terms.size());
  for (const WeightedName& entry : terms) configured.push_back(entry.name);
  for (const std::string& name : prompt.rewards) {
    if (std::ranges::find(configured, name) != configured.end()) continue;
    throw UserError(fmt::format("{}: \"rewards\" names {}, which is not in reward/terms{}", place, name,
                                Suggest(name, configured)));
  }
  double sum = 0;
  for (const auto& [name, weight] : terms) {
    if (!prompt.rewards.empty() && std::ranges::find(prompt.rewards, name) == prompt.rewards.end()) continue;
    sum += weight;
    const RewardTerm& term = *FindRewardTerm(name);
    if (term.needs_include && prompt.include.empty()) {
      throw UserError(
          fmt::format("{}: {} needs an \"include\" list (GenEval's form), and this prompt has none: \"{}\"; "
                      "add one, or name other terms in its \"rewards\"",
                      place, name, prompt.text));
    }
    if (term.needs_detector) CheckClauses(place, prompt);
  }
  if (sum == 0) {
    throw UserError(
        fmt::format("{}: the terms in \"rewards\" ({}) have weight 0 in reward/terms; name one with a weight > 0",
                    place, Join(prompt.rewards)));
  }
}

}  // namespace

void CheckReward(const RewardConfig& config, const std::vector<Prompt>& prompts, const std::string& prompts_path,
                 bool has_detector, const std::string& detector_path) {
  CheckTerms(config, has_detector, detector_path);
  for (const Prompt& prompt : prompts) {
    CheckPrompt(config.terms, prompt, fmt::format("{}:{}", prompts_path, prompt.line));
  }
}

}  // namespace spotlight
