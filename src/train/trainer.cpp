#include "train/trainer.hpp"

#include <algorithm>
#include <cmath>

#include "base/random.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/sde_step.hpp"
#include "kernels/stream.hpp"
#include "train/grpo.hpp"

namespace spotlight {

namespace {

// The pairs that go through the backward pass: all with a gradient, and some without one. Their number is a multiple
// of 8, because every new one costs some twenty new oneDNN primitives, a millisecond each.
std::vector<Index> PairsWithGradient(const std::vector<float>& dlog_probs) {
  constexpr Index kMultiple = 8;
  const Index batch = static_cast<Index>(dlog_probs.size());
  const Index live = std::count_if(dlog_probs.begin(), dlog_probs.end(), [](float g) { return g != 0.0f; });
  Index spare = std::min(batch, (live + kMultiple - 1) / kMultiple * kMultiple) - live;
  std::vector<Index> kept;
  for (Index b = 0; b < batch; ++b) {
    if (dlog_probs[static_cast<std::size_t>(b)] != 0.0f || spare-- > 0) kept.push_back(b);
  }
  return kept;
}

}  // namespace

// Sums over pairs, of one update or of a whole iteration.
struct Trainer::Sums {
  double pairs = 0, loss = 0, kl = 0, log_ratio_squared = 0, clipped_high = 0, clipped_low = 0;
  double ratio = 0, ratio_deviation = 0, ratio_max = 0;  // ratio_max: largest |ratio - 1|

  // All but ratio_max.
  std::vector<double*> added() {
    return {&pairs, &loss, &kl, &log_ratio_squared, &clipped_high, &clipped_low, &ratio, &ratio_deviation};
  }
};

Trainer::Trainer(const Config& config, const std::shared_ptr<const DitLayout>& layout, ModelWeights& weights,
                 TrainerGroup& group, SequenceGroup* sequence_group)
    : config_(config),
      model_(weights),
      group_(group),
      sequence_group_(sequence_group),
      trained_(config, layout, weights, group),
      velocity_(layout, config.sampler.guidance, {}, config.model.recompute, config.model.ActivationType()),
      reference_(layout, config.sampler.guidance, {}, false, config.model.ActivationType()),
      image_shape_{1, config.sampler.height / 16, config.sampler.width / 16},
      latent_size_(image_shape_.tokens() * layout->config().in_channels) {}

void Trainer::SetNegative(const TextCondition& negative) {
  velocity_.SetNegative(negative);
  reference_.SetNegative(negative);
}

std::vector<Trainer::Pair> Trainer::ShuffledPairs(std::uint32_t iteration,
                                                  const std::vector<TrainSample>& samples) const {
  std::vector<Pair> pairs;
  for (const TrainSample& sample : samples) {
    // A group without contrast teaches nothing: its advantages are exactly zero. NaN: not scored.
    if (sample.advantage == 0 || std::isnan(sample.advantage)) continue;
    const int window = static_cast<int>(sample.sample.log_probs.size());
    for (int step = 0; step < window; ++step) pairs.push_back({&sample, step});
  }
  const std::uint64_t key = StreamKey({0x7061697273ULL, config_.run.seed, iteration});
  for (std::size_t i = pairs.size(); i > 1; --i) std::swap(pairs[i - 1], pairs[UniformInt(key, i, i)]);
  return pairs;
}

std::map<std::string, double> Trainer::Train(std::uint32_t iteration, const std::vector<TrainSample>& samples,
                                             const std::vector<TextCondition>& conditions) {
  const std::vector<Pair> pairs = ShuffledPairs(iteration, samples);
  const std::size_t updates = static_cast<std::size_t>(config_.train.updates);
  const std::size_t micro = static_cast<std::size_t>(config_.train.micro_batch);
  const int degree = sequence_group_ == nullptr ? 1 : sequence_group_->size();
  const std::size_t groups = static_cast<std::size_t>(group_.size() / degree);
  const std::size_t group = static_cast<std::size_t>(group_.index() / degree);
  Sums total;
  double first_max = 0, first_mean = 0, grad_norm = 0;
  int applied = 0;
  for (std::size_t update = 0; update < updates; ++update) {
    const std::size_t begin = pairs.size() * update / updates, end = pairs.size() * (update + 1) / updates;
    if (begin == end) continue;
    trained_.ZeroGradient();
    Sums sums;
    // Every trainer takes part in every pass: with its own micro-batch, or by skipping it.
    for (std::size_t from = begin; from < end; from += micro * groups) {
      const std::size_t own = from + micro * group;
      if (own < end) {
        MicroBatch(std::span(pairs).subspan(own, std::min(micro, end - own)), 1.0 / static_cast<double>(end - begin),
                   conditions, sums);
      } else if (config_.train.shard_weights) {
        Sums unused;
        MicroBatch(std::span(pairs).subspan(begin, 1), 0.0, conditions, unused);
      } else {
        trained_.SkipPass();
      }
    }
    AddOverTrainers(sums);
    if (applied == 0) {  // nothing has been updated yet: every ratio must be exactly one
      first_max = sums.ratio_max;
      first_mean = sums.ratio / sums.pairs;
    }
    {
      const Phase phase("update");
      grad_norm += trained_.Update();
    }
    ++applied;
    const std::vector<double*> to = total.added(), add = sums.added();
    for (std::size_t i = 0; i < to.size(); ++i) *to[i] += *add[i];
    total.ratio_max = std::max(total.ratio_max, sums.ratio_max);
  }
  const double n = std::max(1.0, total.pairs);
  return {{"policy_loss", total.loss / n},
          {"policy_kl", total.kl / n},
          {"policy_approx_kl", 0.5 * total.log_ratio_squared / n},
          {"policy_clip_frac_high", total.clipped_high / n},
          {"policy_clip_frac_low", total.clipped_low / n},
          {"policy_ratio_mean", applied > 0 ? total.ratio / n : 1.0},
          {"policy_ratio_dev", total.ratio_deviation / n},
          {"policy_ratio_max_dev", total.ratio_max},
          {"policy_ratio_first_mean", applied > 0 ? first_mean : 1.0},
          {"policy_ratio_first_max_dev", first_max},
          {"policy_pairs", total.pairs},
          {"optim_grad_norm", applied > 0 ? grad_norm / applied : 0.0},
          {"optim_updates", static_cast<double>(applied)}};
}

void Trainer::AddOverTrainers(Sums& sums) {
  if (group_.size() == 1) return;
  // The ranks of a sequence-parallel group have scored the same pairs: one of them speaks for all.
  const bool speaks = sequence_group_ == nullptr || sequence_group_->index() == 0;
  for (double* value : sums.added()) *value = group_.SumDouble(speaks ? *value : 0.0);
  sums.ratio_max = group_.MaxDouble(sums.ratio_max);
}

void Trainer::MicroBatch(std::span<const Pair> pairs, double pair_weight, const std::vector<TextCondition>& conditions,
                         Sums& sums) {
  const Index batch = static_cast<Index>(pairs.size()), n = latent_size_;
  std::vector<float> x(static_cast<std::size_t>(batch * n)), x_next(x.size());
  std::vector<StepCoefficients> coefficients;
  VelocityInput input{.image_shape = image_shape_};
  std::vector<const TextCondition*> texts;
  for (std::size_t b = 0; b < pairs.size(); ++b) {
    const Sample& sample = pairs[b].sample->sample;
    const auto from = sample.latents.begin() + pairs[b].step * n;
    std::copy(from, from + n, x.begin() + static_cast<Index>(b) * n);
    std::copy(from + n, from + 2 * n, x_next.begin() + static_cast<Index>(b) * n);
    coefficients.push_back(sample.steps[static_cast<std::size_t>(pairs[b].step)]);
    texts.push_back(&conditions[sample.request.prompt_index]);
    const float sigma = coefficients.back().sigma;
    const auto level = std::find(input.levels.begin(), input.levels.end(), sigma);
    input.level_index.push_back(static_cast<int>(level - input.levels.begin()));
    if (level == input.levels.end()) input.levels.push_back(sigma);
  }
  for (Buffer* buffer : {&x_, &x_next_, &v_, &dv_}) buffer->Resize(batch * n);
  x_.CopyFromHost(x);
  x_next_.CopyFromHost(x_next);
  input.latents = x_.data();
  Parameters& parameters = trained_.parameters();
  for (Buffer* buffer : {&log_prob_, &kl_, &dlog_prob_, &dkl_}) buffer->Resize(batch);
  std::vector<float> log_probs(pairs.size()), kls(pairs.size(), 0.0f), dlog_probs(pairs.size());
  {
    const Phase phase("forward");
    velocity_.SetTexts(parameters, texts, false, sequence_group_);
    velocity_.Forward(parameters, input, true, v_.data());
    LogProb(batch, n, coefficients.data(), x_.data(), v_.data(), x_next_.data(), log_prob_.data());
    log_prob_.CopyToHost(log_probs);
  }
  const bool with_kl = config_.train.kl_beta > 0;
  if (with_kl) {
    const Phase phase("reference");
    v_reference_.Resize(batch * n);
    reference_.SetTexts(model_.Base(), texts, false, sequence_group_);
    reference_.Forward(model_.Base(), input, false, v_reference_.data());
    StepKl(batch, n, coefficients.data(), v_.data(), v_reference_.data(), kl_.data());
    kl_.CopyToHost(kls);
  }
  for (std::size_t b = 0; b < pairs.size(); ++b) {
    const double old_log_prob = pairs[b].sample->sample.log_probs[static_cast<std::size_t>(pairs[b].step)];
    const PairLoss pair =
        ClippedObjective(log_probs[b], old_log_prob, pairs[b].sample->advantage, config_.train.clip_range);
    dlog_probs[b] = static_cast<float>(pair.dlog_prob * pair_weight);
    sums.pairs += 1;
    sums.loss += pair.loss + config_.train.kl_beta * kls[b];
    sums.kl += kls[b];
    sums.log_ratio_squared += (log_probs[b] - old_log_prob) * (log_probs[b] - old_log_prob);
    sums.clipped_high += pair.clipped && pair.ratio > 1 ? 1 : 0;
    sums.clipped_low += pair.clipped && pair.ratio < 1 ? 1 : 0;
    sums.ratio += pair.ratio;
    sums.ratio_deviation += std::abs(pair.ratio - 1);
    sums.ratio_max = std::max(sums.ratio_max, std::abs(pair.ratio - 1));
  }
  const Phase phase("backward");
  dlog_prob_.CopyFromHost(dlog_probs);
  const std::vector<float> dkls(pairs.size(), static_cast<float>(config_.train.kl_beta * pair_weight));
  dkl_.CopyFromHost(dkls);
  LogProbBackward(batch, n, coefficients.data(), x_.data(), v_.data(), x_next_.data(),
                  with_kl ? v_reference_.data() : nullptr, dlog_prob_.data(), dkl_.data(), dv_.data());
  if (!with_kl) {
    // The clip takes the gradient of a fifth to a half of the pairs after the first update. Their terms of the sums are
    // exact zeros, and twice the work of the forward pass.
    std::vector<Index> kept = PairsWithGradient(dlog_probs);
    if (kept.empty() && !config_.train.shard_weights) return trained_.SkipPass();
    if (kept.empty()) kept.push_back(0);
    velocity_.KeepSamples(kept);
    const TokenRowTable rows(std::vector<Index>(pairs.size(), 1));
    for (Buffer* buffer : {&x_, &dv_}) KeepRows(buffer->data(), rows.view(), n, kept);
  }
  velocity_.Backward(parameters, dv_.data());
}

}  // namespace spotlight
