#include "plan/prompt_sampler.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "base/random.hpp"

namespace spotlight {
namespace {

constexpr std::uint64_t kPromptStream = 0x70726f6d7074ULL;

}  // namespace

PromptSampler::PromptSampler(const std::vector<Prompt>& prompts, const std::vector<WeightedName>& tag_weights,
                             std::uint64_t run_seed)
    : run_seed_(run_seed) {
  std::map<std::string, Tag> by_name;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    // Without weights all prompts form one tag.
    Tag& tag = by_name.try_emplace(tag_weights.empty() ? "" : prompts[i].tag, Tag{1, {}}).first->second;
    tag.prompts.push_back(static_cast<int>(i));
  }
  std::map<std::string, int> listed;
  for (const WeightedName& entry : tag_weights) {
    const auto tag = by_name.find(entry.name);
    if (tag == by_name.end()) {
      std::vector<std::string> names;
      for (const auto& known : by_name) names.push_back(known.first);
      const std::string nearest = NearestName(entry.name, names);
      throw UserError(fmt::format("prompts/tag_weights: no training prompt has the tag '{}'; {} (tags: {})", entry.name,
                                  nearest.empty() ? "remove it" : "did you mean '" + nearest + "'?",
                                  fmt::join(names, ", ")));
    }
    if (++listed[entry.name] > 1) {
      throw UserError(fmt::format("prompts/tag_weights: the tag '{}' is listed twice; keep one", entry.name));
    }
    if (!std::isfinite(entry.weight) || entry.weight < 0) {
      throw UserError(fmt::format("prompts/tag_weights: the weight of '{}' is {}; it must be a finite number >= 0",
                                  entry.name, entry.weight));
    }
    tag->second.weight = entry.weight;
  }
  for (auto& [name, tag] : by_name) {
    if (tag.weight == 0) continue;
    drawable_ += static_cast<int>(tag.prompts.size());
    tags_.push_back(std::move(tag));
  }
  if (drawable_ == 0) {
    throw UserError(prompts.empty()
                        ? "prompts/train: the file has no prompts; add at least one"
                        : "prompts/tag_weights: every tag has the weight 0; give at least one a weight > 0");
  }
}

std::vector<int> PromptSampler::Draw(std::uint32_t iteration, int count) const {
  if (count > drawable_) {
    throw UserError(
        fmt::format("group/prompts: {} different prompts an iteration, but only {} can be drawn; lower it, "
                    "or add prompts to prompts/train",
                    count, drawable_));
  }
  const std::uint64_t key = StreamKey({kPromptStream, run_seed_, iteration});
  std::uint64_t index = 0;
  std::vector<Tag> left = tags_;
  std::vector<int> drawn;
  while (std::ssize(drawn) < count) {
    double total = 0;
    for (const Tag& tag : left) total += tag.weight;
    double point = UniformDouble(key, index++) * total;
    std::size_t t = 0;
    while (t + 1 < left.size() && point >= left[t].weight) point -= left[t++].weight;
    std::vector<int>& prompts = left[t].prompts;
    const std::uint64_t i = UniformInt(key, index++, prompts.size());
    drawn.push_back(prompts[i]);
    prompts[i] = prompts.back();
    prompts.pop_back();
    if (prompts.empty()) left.erase(left.begin() + static_cast<std::ptrdiff_t>(t));
  }
  return drawn;
}

}  // namespace spotlight
