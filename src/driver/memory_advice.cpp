#include "driver/memory_advice.hpp"

#include <fmt/format.h>

#include <functional>
#include <utility>

#include "base/error.hpp"
#include "config/fields.hpp"

namespace spotlight {
namespace {

constexpr int kMostTrainers = 64;
constexpr int kMostSharing = 8;  // ranks of one node

// A key, and what gives it the next value that needs less memory; false: there is none.
struct Saving {
  std::string section, key;
  std::function<bool(Config&)> apply;
};

bool Halve(int& value) {
  if (value == 1) return false;
  value = (value + 1) / 2;
  return true;
}

bool SetTrue(bool& flag) { return !std::exchange(flag, true); }

bool RoundWeights(ModelConfig::Precision& precision) {
  return std::exchange(precision, ModelConfig::Precision::kBf16) != ModelConfig::Precision::kBf16;
}

// The next degree that the heads and `ranks` allow; ranks 0: there may be any number of them.
bool ShareMore(int& degree, int heads, int ranks) {
  for (int next = degree + 1; next <= kMostSharing; ++next) {
    if (heads % next != 0 || ranks % next != 0) continue;
    degree = next;
    return true;
  }
  return false;
}

bool DoubleTrainers(int& trainers) {
  if (2 * trainers > kMostTrainers) return false;
  trainers *= 2;
  return true;
}

// In the order in which they are tried.
std::vector<Saving> Savings(Role role, bool lora, int heads) {
  const Saving batch{"sampler", "batch", [](Config& c) { return Halve(c.sampler.batch); }};
  const Saving precision{"model", "precision", [](Config& c) { return RoundWeights(c.model.precision); }};
  if (role == Role::kExplorer) {
    return {batch, precision, {"ranks", "explorer_sp", [=](Config& c) {
                                 return ShareMore(c.ranks.explorer_sp, heads, 0);
                               }}};
  }
  std::vector<Saving> savings{{"model", "recompute", [](Config& c) { return SetTrue(c.model.recompute); }},
                              {"train", "micro_batch", [](Config& c) { return Halve(c.train.micro_batch); }},
                              batch,
                              precision};
  if (lora) {
    savings.push_back(
        {"ranks", "trainer_sp", [=](Config& c) { return ShareMore(c.ranks.trainer_sp, heads, c.ranks.trainers); }});
  } else {
    savings.push_back({"train", "shard_weights", [](Config& c) { return SetTrue(c.train.shard_weights); }});
  }
  savings.push_back({"ranks", "trainers", [](Config& c) { return DoubleTrainers(c.ranks.trainers); }});
  return savings;
}

// The field of a saving, bound to `config`.
Field FieldOf(Config& config, const Saving& saving) {
  for (Section& section : FieldList(config)) {
    if (section.name != saving.section) continue;
    for (Field& field : section.fields) {
      if (field.key == saving.key) return field;
    }
  }
  FailRequire("savings name keys of the field list", __FILE__, __LINE__, saving.key);
}

}  // namespace

std::optional<std::vector<std::string>> ChangesToFit(const Config& config, const DitLayout& layout, Index text_tokens,
                                                     Index sigmas, Role role, double bytes) {
  const auto needed = [&](const Config& tried) {
    return EstimateMemory(tried, layout, text_tokens, sigmas, role).device();
  };
  const std::vector<Saving> savings = Savings(role, config.lora.rank > 0, layout.config().num_attention_heads);
  Config original = config, changed = config;
  for (const Saving& saving : savings) {
    while (needed(changed) > bytes) {
      Config next = changed;
      if (!saving.apply(next) || needed(next) >= needed(changed)) break;
      changed = next;
    }
  }
  if (needed(changed) > bytes) return std::nullopt;
  std::vector<std::string> overrides;
  for (const Saving& saving : savings) {
    // What a later saving has made needless goes back.
    Config without = changed;
    FieldOf(without, saving).set(FieldOf(original, saving).get());
    if (needed(without) <= bytes) {
      changed = without;
    } else {
      overrides.push_back(fmt::format("{}/{}={}", saving.section, saving.key, FieldOf(changed, saving).get()));
    }
  }
  return overrides;
}

}  // namespace spotlight
