#include "driver/study_file.hpp"

#include <unistd.h>

#include <numeric>

#include "io/atomic_file.hpp"
#include "io/h5.hpp"

namespace spotlight {
namespace {

constexpr const char* kSetting = "/setting";
constexpr const char* kPrompt = "/prompt";
constexpr const char* kSeed = "/seed";

// Writes datasets whose dimensions are the scales above.
class Writer {
 public:
  Writer(H5File& file, const RankStudy& study) : file_(file), study_(study) {
    AddScale(kSetting, "way to explore; 0: the reference", study.settings.size());
    AddScale(kPrompt, "training prompt", study.prompts.size());
    AddScale(kSeed, "seed of a prompt", study.settings.front().seeds.size());
  }

  template <typename T>
  void Add(const std::string& name, const std::vector<std::string>& scales, const std::vector<T>& values,
           const std::string& long_name, const std::string& units = "1") {
    Shape shape;
    for (const std::string& scale : scales) shape.push_back(file_.Dimensions(scale)[0]);
    file_.Write<T>(name, shape, values);
    Describe(name, long_name, units);
    for (std::size_t i = 0; i < scales.size(); ++i) file_.AttachScale(name, scales[i], static_cast<int>(i));
  }

  // One value a setting.
  template <typename T, typename Of>
  void AddOfSettings(const std::string& name, const std::string& long_name, const Of& of,
                     const std::string& units = "1") {
    std::vector<T> values;
    for (const StudySetting& setting : study_.settings) values.push_back(static_cast<T>(of(setting)));
    Add<T>(name, {kSetting}, values, long_name, units);
  }

  // A member of the agreement, prompt by prompt, and its mean with interval.
  void AddAgreement(const std::string& name, const std::string& long_name, std::vector<double> RankAgreement::*member) {
    std::vector<double> values, mean, low, high;
    for (const StudySetting& setting : study_.settings) {
      const std::vector<double>& of_prompts = setting.agreement.*member;
      values.insert(values.end(), of_prompts.begin(), of_prompts.end());
      const MeanOverPrompts average = AverageOverPrompts(of_prompts);
      mean.push_back(average.mean);
      low.push_back(average.interval.low);
      high.push_back(average.interval.high);
    }
    Add(name, {kSetting, kPrompt}, values, long_name);
    Add(name + "_mean", {kSetting}, mean, "mean over prompts of: " + long_name);
    Add(name + "_low", {kSetting}, low, "lower end of the mean's 95 % interval");
    Add(name + "_high", {kSetting}, high, "upper end of the mean's 95 % interval");
  }

  void AddTexts(const std::string& name, const std::string& scale, const std::vector<std::string>& values,
                const std::string& long_name) {
    file_.WriteTexts(name, values);
    Describe(name, long_name, "1");
    file_.AttachScale(name, scale, 0);
  }

 private:
  void AddScale(const std::string& name, const std::string& long_name, std::size_t size) {
    std::vector<std::int64_t> numbers(size);
    std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
    file_.Write<std::int64_t>(name, {static_cast<std::int64_t>(size)}, numbers);
    Describe(name, long_name, "1");
    file_.MakeScale(name, name.substr(1));
  }
  void Describe(const std::string& name, const std::string& long_name, const std::string& units) {
    file_.SetText(name, "units", units);
    file_.SetText(name, "long_name", long_name);
  }

  H5File& file_;
  const RankStudy& study_;
};

void WriteDatasets(H5File& file, const RankStudy& study) {
  Writer writer(file, study);
  std::vector<double> rewards;
  std::vector<std::uint64_t> seeds;
  std::vector<std::string> names;
  for (const StudySetting& setting : study.settings) {
    for (const std::vector<double>& of_prompt : setting.rewards) {
      rewards.insert(rewards.end(), of_prompt.begin(), of_prompt.end());
    }
    seeds.insert(seeds.end(), setting.seeds.begin(), setting.seeds.end());
    names.push_back(setting.name);
  }
  writer.Add("/rewards", {kSetting, kPrompt, kSeed}, rewards, "weighted mean of the reward terms");
  writer.Add("/noise_seed", {kSetting, kSeed}, seeds, "noise stream");

  using Setting = StudySetting;
  writer.AddTexts("/name", kSetting, names, "weights and noise of the setting");
  writer.AddOfSettings<std::int64_t>("/lag", "versions that the weights are older than the reference's",
                                     [](const Setting& setting) { return setting.lag; });
  writer.AddOfSettings<std::uint64_t>("/weight_version", "weights that denoised",
                                      [](const Setting& setting) { return setting.weight_version; });
  writer.AddOfSettings<std::int64_t>("/real_steps", "computed denoising steps",
                                     [](const Setting& setting) { return setting.real_steps; });
  writer.AddOfSettings<double>(
      "/seed_s", "wall time of one seed: denoising, decoding, judging",
      [](const Setting& setting) { return setting.seconds; }, "s");
  writer.AddAgreement("/spearman", "Spearman's rho with the reference's rewards", &RankAgreement::spearman);
  writer.AddAgreement("/kendall", "Kendall's tau-b with the reference's rewards", &RankAgreement::kendall);
  writer.AddAgreement("/overlap", "share of the kept / 2 best and worst seeds that are the reference's",
                      &RankAgreement::overlap);
  writer.AddAgreement("/spread", "std of the reference's rewards of the seeds chosen", &RankAgreement::spread);
  writer.AddOfSettings<double>("/spread_gained", "of the way from spread_random to spread_best, on average",
                               [&](const Setting& setting) {
                                 return SpreadGained(setting.agreement.spread, study.random_spread, study.best_spread);
                               });
  writer.Add("/spread_random", {kPrompt}, study.random_spread, "the same of seeds drawn at random, on average");
  writer.Add("/spread_best", {kPrompt}, study.best_spread, "the largest that there is");

  std::vector<std::string> texts, tags;
  std::vector<std::uint64_t> ids;
  for (const Prompt& prompt : study.prompts) {
    texts.push_back(prompt.text);
    tags.push_back(prompt.tag);
    ids.push_back(prompt.id);
  }
  writer.AddTexts("/prompt_text", kPrompt, texts, "prompt");
  writer.AddTexts("/prompt_tag", kPrompt, tags, "its tag");
  writer.Add("/prompt_id", {kPrompt}, ids, "content hash of the prompt");
  writer.Add("/prompt_index", {kPrompt},
             std::vector<std::int64_t>(study.prompt_indices.begin(), study.prompt_indices.end()),
             "index in the prompt list");
}

}  // namespace

void WriteStudy(const std::string& path, const RankStudy& study, const std::map<std::string, std::string>& attributes) {
  const std::string aside = AsidePath(path);
  try {
    H5File file(aside, H5File::Mode::kCreate);
    for (const auto& [name, value] : attributes) file.SetText("/", name, value);
    file.SetInt("/", "weight_version", static_cast<std::int64_t>(study.settings.front().weight_version));
    file.SetInt("/", "kept", study.kept);
    WriteDatasets(file, study);
    file.Close();
  } catch (...) {
    unlink(aside.c_str());
    throw;
  }
  CommitAside(aside, path);
}

}  // namespace spotlight
