#include "io/peft_config.hpp"

#include <algorithm>
#include <regex>
#include <set>

#include "io/json_reading.hpp"

namespace spotlight {
namespace {

using nlohmann::json;

// Fields that make an adapter something else as soon as they are set.
constexpr std::pair<const char*, const char*> kRefused[] = {
    {"use_dora", "DoRA"},
    {"use_rslora", "rsLoRA, scaled by alpha / sqrt(r)"},
    {"use_qalora", "QALoRA"},
    {"use_bdlora", "block-diagonal LoRA"},
    {"alora_invocation_tokens", "activated LoRA"},
    {"arrow_config", "Arrow"},
    {"kasa_config", "KaSA"},
    {"monteclora_config", "MonteCLoRA"},
    {"lora_bias", "LoRA with a bias in B"},
    {"fan_in_fan_out", "LoRA of transposed weights"},
    {"modules_to_save", "LoRA with whole modules beside it"},
    {"layer_replication", "LoRA with replicated layers"},
    {"target_parameters", "LoRA of bare parameters"},
    {"trainable_token_indices", "LoRA with trained token embeddings"},
};

// Initialisations that leave the base model as it was. The others (PiSSA, OLoRA, LoftQ, ...) subtract something from
// its weights, so that their adapters are wrong on the published ones.
const std::set<std::string>& PlainStarts() {
  static const std::set<std::string> kNames = {"gaussian", "eva", "orthogonal"};
  return kNames;
}

bool IsSet(const json& value) {
  return !value.is_null() && value != false && !(value.is_structured() && value.empty());
}

[[noreturn]] void Refuse(const std::string& place, const char* field, const json& value, const std::string& what) {
  throw UserError(fmt::format("{}: \"{}\" is {}: {}; plain LoRA is supported (peft_type LORA, scale alpha / r)", place,
                              field, Brief(value), what));
}

void RefuseText(const json& fields, const std::string& place, const char* field, const char* allowed,
                const std::string& what) {
  const auto found = fields.find(field);
  if (found != fields.end() && !found->is_null() && *found != allowed) Refuse(place, field, *found, what);
}

PeftConfig::Patterns ParsePatterns(const json& fields, const std::string& place, const char* field) {
  PeftConfig::Patterns patterns;
  const auto found = fields.find(field);
  if (found == fields.end() || found->is_null()) return patterns;
  if (!found->is_object()) {
    throw UserError(
        fmt::format("{}: \"{}\" is {}; an object of module pattern -> number is meant", place, field, Brief(*found)));
  }
  for (const auto& [pattern, value] : found->items()) {
    if (!value.is_number()) {
      throw UserError(fmt::format("{}: \"{}\": \"{}\" is {}; a number is meant", place, field, pattern, Brief(value)));
    }
    try {
      const std::regex compiled(pattern);
    } catch (const std::regex_error&) {
      throw UserError(fmt::format("{}: \"{}\": \"{}\" is not a regular expression", place, field, pattern));
    }
    patterns.emplace_back(pattern, value.get<double>());
  }
  return patterns;
}

// The first pattern that fits counts (peft.utils.get_pattern_key).
double PatternOr(const PeftConfig::Patterns& patterns, const std::string& module, double fallback) {
  const auto fits = [&](const auto& entry) {
    return std::regex_match(module, std::regex("(.*\\.)?(" + entry.first + ")"));
  };
  const auto found = std::find_if(patterns.begin(), patterns.end(), fits);
  return found == patterns.end() ? fallback : found->second;
}

}  // namespace

double PeftConfig::RankOf(const std::string& module) const { return PatternOr(rank_pattern, module, rank); }
double PeftConfig::AlphaOf(const std::string& module) const { return PatternOr(alpha_pattern, module, alpha); }

PeftConfig ParsePeftConfig(const json& fields, const std::string& place) {
  RefuseText(fields, place, "peft_type", "LORA", "another kind of adapter");
  for (const auto& [field, what] : kRefused) {
    const auto found = fields.find(field);
    if (found != fields.end() && IsSet(*found)) Refuse(place, field, *found, what);
  }
  RefuseText(fields, place, "bias", "none", "trained biases of the base's layers");
  const auto start = fields.find("init_lora_weights");
  if (start != fields.end() && start->is_string() && !PlainStarts().contains(start->get<std::string>())) {
    Refuse(place, "init_lora_weights", *start, "it changed the base's weights; convert the adapter to plain LoRA");
  }
  const PeftConfig defaults;
  return {.place = place,
          .rank = NumberOr(fields, place, "r", defaults.rank),
          .alpha = NumberOr(fields, place, "lora_alpha", defaults.alpha),
          .rank_pattern = ParsePatterns(fields, place, "rank_pattern"),
          .alpha_pattern = ParsePatterns(fields, place, "alpha_pattern")};
}

}  // namespace spotlight
