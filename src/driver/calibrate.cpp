#include "driver/calibrate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/log.hpp"
#include "config/check.hpp"
#include "config/input.hpp"
#include "driver/computing.hpp"
#include "driver/resources.hpp"
#include "driver/signals.hpp"
#include "model/model_weights.hpp"
#include "plan/correlation.hpp"
#include "plan/prompt_sampler.hpp"
#include "plan/window.hpp"
#include "rollout/schedule.hpp"

namespace spotlight {
namespace {

using Cache = ExploreConfig::Cache;
using Polynomial = StepCache::Polynomial;

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double Value(const Polynomial& polynomial, double x) {
  return std::accumulate(polynomial.begin(), polynomial.end(), 0.0, [x](double sum, double c) { return sum * x + c; });
}

// Reads at each border how much the cache's indicator has changed since the step before, and how much the residual.
class Watch : public StepBorder {
 public:
  void Of(const StepCache& cache) { cache_ = &cache; }
  void At(int steps, BatchStates* /*states*/) override {
    std::vector<float> now(static_cast<std::size_t>(cache_->residual().size()));
    cache_->residual().CopyToHost(now);
    const std::size_t samples = cache_->changes().size(), size = now.size() / samples;
    for (std::size_t b = 0; steps > 1 && b < samples; ++b) {
      double difference = 0, before = 0;
      for (std::size_t i = b * size; i < (b + 1) * size; ++i) {
        difference += std::abs(static_cast<double>(now[i]) - last_[i]);
        before += std::abs(static_cast<double>(last_[i]));
      }
      changes.push_back(cache_->changes()[b]);
      residual_changes.push_back(difference / before);
    }
    last_ = std::move(now);
  }
  std::vector<double> changes, residual_changes;  // a step of a sample each

 private:
  const StepCache* cache_ = nullptr;
  std::vector<float> last_;
};

// One way to explore, and what came of it.
struct Explored {
  std::vector<std::vector<double>> rewards;  // [prompts][seeds]
  double passes = 0;                         // of an image, mean over guidance branches
  double seconds = 0;                        // of all passes
};

class Calibration {
 public:
  Calibration(const Config& config, const Resources& resources, Parameters& parameters)
      : config_(config), resources_(resources), parameters_(parameters), prompts_(WithoutConditions(resources.train)) {
    const int window = DrawWindowStart(config.run.seed, 0, config.sampler.window_first, config.sampler.window_last);
    const PromptSampler sampler(prompts_.prompts, config.prompts.tag_weights, config.run.seed);
    for (const int prompt : sampler.Draw(0, config.group.prompts)) {
      const auto index = static_cast<std::size_t>(prompt);
      prompts_.conditions[index] = resources.text->Embed(prompts_.prompts[index].text);
      for (int seed = 0; seed < Seeds(); ++seed) {
        requests_.push_back({.kind = RequestKind::kExplore,
                             .prompt_index = static_cast<std::uint32_t>(prompt),
                             .seed = SeedName(0, static_cast<std::uint32_t>(seed)),
                             .window_begin = static_cast<std::uint32_t>(window),
                             .window_end = static_cast<std::uint32_t>(window + config.sampler.window_size)});
      }
    }
    if (config.sampler.guidance > 1) negative_ = resources.text->Embed(config.sampler.negative_prompt);
  }

  int Seeds() const { return std::max(config_.explore.seeds, config_.group.images); }

  // All requests. real_steps: Request::real_steps.
  Explored Explore(const ExploreConfig& explore, int real_steps, Watch* watch = nullptr) {
    Config config = config_;
    config.explore = explore;
    Sampler sampler(config, resources_.model.scheduler, resources_.model.layout, negative_);
    if (watch != nullptr) watch->Of(sampler.cache());
    for (Request& request : requests_) request.real_steps = static_cast<std::uint32_t>(real_steps);
    Explored explored;
    const std::size_t batch_size = static_cast<std::size_t>(config.sampler.batch);
    for (std::size_t from = 0; from < requests_.size(); from += batch_size) {
      const std::size_t end = std::min(requests_.size(), from + batch_size);
      const std::vector<Request> batch(requests_.begin() + static_cast<Index>(from),
                                       requests_.begin() + static_cast<Index>(end));
      const std::vector<Denoised> denoised = sampler.Denoise(parameters_, batch, prompts_, nullptr, {}, watch);
      const BatchTimes& times = sampler.times();
      explored.seconds += times.real_seconds + times.cached_seconds;
      double passes = times.real_passes;  // without a cache, and with one that treats all alike
      if (explore.cache != Cache::kSteps) {
        const std::vector<int>& computed = sampler.cache().computed();
        passes = std::accumulate(computed.begin(), computed.end(), 0.0) / static_cast<double>(computed.size());
      }
      explored.passes += passes * static_cast<double>(batch.size()) / static_cast<double>(requests_.size());
      const ImageShape shape = sampler.image_shape();
      for (std::size_t i = 0; i < batch.size(); ++i) {
        const Image image = resources_.model.decoder->Decode(denoised[i].latents, shape.height, shape.width);
        if ((from + i) % static_cast<std::size_t>(Seeds()) == 0) explored.rewards.emplace_back();
        explored.rewards.back().push_back(
            resources_.reward->Score(prompts_.prompts[batch[i].prompt_index], image).total);
      }
      if (!StopSignal().empty()) break;
    }
    return explored;
  }

 private:
  const Config& config_;
  const Resources& resources_;
  Parameters& parameters_;
  ConditionedPrompts prompts_;
  TextCondition negative_;
  std::vector<Request> requests_;  // the seeds of a prompt are neighbours
};

// "0.812 +- 0.021" over the prompts for which it is defined.
std::string MeanOverPrompts(const Explored& full, const Explored& cached,
                            double (*correlation)(std::span<const double>, std::span<const double>)) {
  std::vector<double> values;
  for (std::size_t p = 0; p < full.rewards.size(); ++p) {
    const double value = correlation(full.rewards[p], cached.rewards[p]);
    if (!std::isnan(value)) values.push_back(value);
  }
  if (values.size() < 2) return "-";
  const double n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return fmt::format("{:.3f} +- {:.3f}", mean, std::sqrt(squares / (n - 1) / n));
}

void PrintRow(const std::string& form, const std::string& setting, const Explored& full, const Explored& cached) {
  LogLine(fmt::format("{:<12} {:>9} {:>7.2f} {:>6.3f}   {:>15}   {:>15}", form, setting, cached.passes,
                      cached.seconds / full.seconds, MeanOverPrompts(full, cached, Spearman),
                      MeanOverPrompts(full, cached, KendallTauB)));
}

// About ten numbers of real steps out of `steps`.
std::vector<int> RealSteps(int steps) {
  std::vector<int> counts;
  const int stride = (steps + 9) / 10;
  for (int count = steps - stride; count >= 1; count -= stride) counts.push_back(count);
  return counts;
}

}  // namespace

std::array<double, 5> FitPolynomial(std::span<const double> x, std::span<const double> y) {
  SPOTLIGHT_REQUIRE(x.size() == y.size() && !x.empty(), "points");
  const auto largest =
      std::max_element(x.begin(), x.end(), [](double a, double b) { return std::abs(a) < std::abs(b); });
  const double scale = *largest == 0 ? 1 : std::abs(*largest);
  // Powers of x / scale, each made orthogonal to the lower ones twice (Gram-Schmidt), and y's part along each.
  constexpr std::size_t kTerms = std::tuple_size_v<Polynomial>;
  std::vector<std::vector<double>> basis;
  std::array<std::array<double, kTerms>, kTerms> triangle{};
  std::array<double, kTerms> along{};
  for (std::size_t power = 0; power < kTerms; ++power) {
    std::vector<double> column;
    for (const double value : x) column.push_back(std::pow(value / scale, static_cast<double>(power)));
    const double length = std::sqrt(Dot(column, column));
    for (int round = 0; round < 2; ++round) {
      for (std::size_t k = 0; k < basis.size(); ++k) {
        const double part = Dot(column, basis[k]);
        triangle[k][power] += part;
        for (std::size_t i = 0; i < column.size(); ++i) column[i] -= part * basis[k][i];
      }
    }
    const double left = std::sqrt(Dot(column, column));
    if (!(left > 1e-10 * length)) break;  // this power and the higher ones are not determined
    triangle[power][power] = left;
    for (double& value : column) value /= left;
    along[power] = Dot(column, {y.begin(), y.end()});
    basis.push_back(std::move(column));
  }
  std::array<double, 5> coefficients{};
  for (std::size_t power = basis.size(); power-- > 0;) {
    double rest = along[power];
    for (std::size_t k = power + 1; k < basis.size(); ++k) {
      rest -= triangle[power][k] * coefficients[kTerms - 1 - k];
    }
    coefficients[kTerms - 1 - power] = rest / triangle[power][power];
  }
  for (std::size_t power = 0; power < kTerms; ++power) {
    coefficients[kTerms - 1 - power] /= std::pow(scale, static_cast<double>(power));
  }
  return coefficients;
}

int RunCalibrate(const CommandLine& command, const World& world) {
  if (world.size() > 1) throw UserError("spotlight calibrate works in one process; start it without mpirun");
  InstallSignalHandlers();
  Config config = ReadInput(command.input, command.overrides);
  CheckConfig(config);
  StartComputing(config, world);
  const Resources resources = LoadResources(config);
  for (const std::string& note : resources.notes) LogLine(note);
  ModelWeights weights(resources.model.layout, resources.model.weights, MakePrecision(config.model),
                       NetworkSigmas(config, resources.model.scheduler));
  if (!resources.adapter.empty()) weights.Put({0, false}, resources.adapter);
  Parameters& parameters = resources.adapter.empty() ? weights.Base() : weights.Of({0, false});
  Calibration calibration(config, resources, parameters);
  const int steps = config.sampler.steps;
  LogLine(fmt::format("{} prompts x {} seeds (group/prompts, explore/seeds), {} steps, guidance {}",
                      config.group.prompts, calibration.Seeds(), steps, config.sampler.guidance));
  const Explored full = calibration.Explore({}, 0);

  // With threshold 0 every step is computed.
  Watch input, first_block;
  ExploreConfig tea{.cache = Cache::kTea, .cache_threshold = 0};
  ExploreConfig first{.cache = Cache::kFirstBlock, .cache_threshold = 0};
  calibration.Explore(tea, 0, &input);
  calibration.Explore(first, 0, &first_block);
  if (!StopSignal().empty()) return kExitStopped;
  if (input.changes.empty()) throw UserError("sampler/steps: a step after the second is needed to compare with");
  const Polynomial polynomial = FitPolynomial(input.changes, input.residual_changes);
  tea.cache_polynomial.assign(polynomial.begin(), polynomial.end());
  LogLine("for section [explore] of the input:");
  LogLine(fmt::format("cache_polynomial = {:.6g}", fmt::join(polynomial, ", ")));
  double square_error = 0, tea_mean = 0, first_mean = 0;
  const double points = static_cast<double>(input.changes.size());
  for (std::size_t i = 0; i < input.changes.size(); ++i) {
    const double value = Value(polynomial, input.changes[i]);
    square_error += (value - input.residual_changes[i]) * (value - input.residual_changes[i]) / points;
    tea_mean += std::abs(value) / points;
    first_mean += first_block.changes[i] / points;
  }
  const auto [least, most] = std::minmax_element(input.changes.begin(), input.changes.end());
  LogLine(fmt::format("of a change of {:.3g} .. {:.3g}; error {:.2g}, of residual changes of {:.2g} on average", *least,
                      *most, std::sqrt(square_error), tea_mean));

  LogLine(fmt::format("{:<12} {:>9} {:>7} {:>6}   {:>15}   {:>15}", "cache", "setting", "passes", "time", "Spearman",
                      "Kendall tau-b"));
  const auto add = [&](const std::string& form, const std::string& setting, const ExploreConfig& explore, int real) {
    if (StopSignal().empty()) {
      const Explored cached = calibration.Explore(explore, real);
      if (StopSignal().empty()) PrintRow(form, setting, full, cached);
    }
  };
  PrintRow("none", "", full, full);
  for (const int real : RealSteps(steps)) add("steps", fmt::format("{}/{}", real, steps), {}, real);
  for (auto [form, explore, mean] :
       {std::tuple("tea", &tea, tea_mean), std::tuple("first_block", &first, first_mean)}) {
    for (const double multiple : {1.0, 1.5, 2.0, 3.0, 4.0}) {
      const std::string threshold = fmt::format("{:.2g}", multiple * mean);
      explore->cache_threshold = std::stod(threshold);
      add(form, threshold, *explore, 0);
    }
  }
  return StopSignal().empty() ? kExitFinished : kExitStopped;
}

}  // namespace spotlight
