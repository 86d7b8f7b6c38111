#include "record/run_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "config/dump.hpp"
#include "io/atomic_file.hpp"
#include "io/image_file.hpp"
#include "io/provenance.hpp"
#include "record/history.hpp"

namespace spotlight {
namespace {

std::string OwnBuild() {
  const std::map<std::string, std::string> provenance = Provenance();
  return provenance.at("git_sha") + (provenance.at("git_dirty") == "yes" ? "-dirty" : "");
}

// Those that have written the file so far, in their order, and this one.
std::string BuildsOf(const RunFile& file) {
  const std::vector<std::string> names = file.AttributeNames();
  const bool listed = std::find(names.begin(), names.end(), "git_shas") != names.end();
  const std::string builds = file.ReadAttribute(listed ? "git_shas" : "git_sha"), own = OwnBuild();
  return builds == own || builds.ends_with(" " + own) ? builds : builds + " " + own;
}

}  // namespace

RunRecord::RunRecord(std::string directory, const RecordedInputs& inputs)
    : directory_(std::move(directory)), inputs_(inputs), run_file_(directory_ + "/run.h5") {}

void RunRecord::Create(const std::map<std::string, std::string>& attributes) {
  std::map<std::string, std::string> all = Provenance();
  all.insert(attributes.begin(), attributes.end());
  all["input"] = DumpConfig(inputs_.config);
  all["git_shas"] = OwnBuild();
  WriteFileAtomically(directory_ + "/input.resolved.ini", all["input"]);
  run_file_.Create(all, HistoryColumns(inputs_.eval_prompts), inputs_.reward_terms);
  run_file_.WritePrompts(inputs_.train_prompts);
  history_ = std::make_unique<HistoryLog>(directory_ + "/history.jsonl");
  history_->TruncateAfter(-1);  // of a run that ended before it had made run.h5
}

void RunRecord::Resume(int step, const std::map<std::string, std::string>& attributes) {
  WriteFileAtomically(directory_ + "/input.resolved.ini", DumpConfig(inputs_.config));
  history_ = std::make_unique<HistoryLog>(directory_ + "/history.jsonl");
  history_->TruncateAfter(step - 1);
  run_file_.TruncateAfter(step - 1);
  std::map<std::string, std::string> all = attributes;
  all["git_shas"] = BuildsOf(run_file_);
  run_file_.SetAttributes(all);
}

void RunRecord::AddFinal(int step, const std::map<std::string, double>& values) {
  run_file_.AppendHistory(step, values);
  history_->Append(step, values);
}

void RunRecord::AddIteration(const IterationPlan& plan, const std::map<std::string, double>& values,
                             const std::vector<Sample>& samples, const Advantages& advantages,
                             const std::vector<Sample>& explored, const IterationPlan& next,
                             std::vector<DecisionRow> decisions) {
  const std::size_t images = plan.groups.front().seeds.size();
  IterationRows rows{.rollouts = {}, .explored = {}, .decisions = std::move(decisions)};
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = samples[i];
    const double advantage = advantages.values[i];
    rows.rollouts.push_back({.step = plan.iteration,
                             .prompt_id = inputs_.train_prompts[sample.request.prompt_index].id,
                             .prompt_index = sample.request.prompt_index,
                             .group = static_cast<std::int64_t>(i / images),
                             .seed = sample.request.seed,
                             .rank = sample.rank,
                             .weight_version = sample.request.weight_version,
                             .reward = sample.reward,
                             .advantage = advantage,
                             .trained = advantage != 0 && !std::isnan(advantage),
                             .terms = sample.terms});
  }
  for (const Sample& sample : explored) {
    const Request& request = sample.request;
    ExploredRow row{.step = plan.iteration,
                    .prompt_id = inputs_.train_prompts[request.prompt_index].id,
                    .prompt_index = request.prompt_index,
                    .seed = request.seed,
                    .real_steps = request.real_steps,
                    .rank = sample.rank,
                    .weight_version = request.weight_version,
                    .reward = sample.reward};
    for (std::size_t p = 0; p < next.prompts.size(); ++p) {
      if (static_cast<std::uint32_t>(next.prompts[p]) != request.prompt_index) continue;
      const SeedChoice& group = next.groups[p];
      for (std::size_t i = 0; i < group.seeds.size(); ++i) {
        if (group.seeds[i] != request.seed) continue;
        row.kept = true;
        row.control = group.control[i] != 0;
      }
    }
    rows.explored.push_back(row);
  }
  run_file_.AppendIteration(plan.iteration, values, rows);
  history_->Append(plan.iteration, values);
}

void RunRecord::AddPictures(int step, const Evaluation& evaluation) {
  if (evaluation.pictures.empty()) return;
  const std::string folder = fmt::format("{}/samples/step_{:06}", directory_, step);
  std::filesystem::create_directories(folder);
  std::vector<Image> images;
  std::vector<std::string> captions;
  for (const Sample& sample : evaluation.pictures) {
    const Prompt& prompt = inputs_.eval_prompts[sample.request.prompt_index];
    images.push_back(sample.image);
    captions.push_back(fmt::format("{} | {:.2f}", prompt.text, sample.reward));
    const std::map<std::string, std::string> text = {{"prompt", prompt.text},
                                                     {"seed", std::to_string(sample.request.seed)},
                                                     {"reward", fmt::format("{:.6f}", sample.reward)},
                                                     {"weight_version", std::to_string(sample.request.weight_version)},
                                                     {"step", std::to_string(step)}};
    WritePng(fmt::format("{}/{:05}_{:02}.png", folder, sample.request.prompt_index, sample.request.seed), sample.image,
             text);
  }
  WriteGrid(folder + "/grid.png", images, captions, 4, GridScale(images[0].width));
  run_file_.AppendImages(step, images, captions);
}

}  // namespace spotlight
