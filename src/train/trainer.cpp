#include "train/trainer.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/random.hpp"
#include "kernels/optimizer.hpp"
#include "kernels/sde_step.hpp"
#include "train/grpo.hpp"

namespace spotlight {

namespace {

// Which pair each place of the backward pass gets: all pairs with a gradient. Those behind the last place take the
// places of pairs without one. The number of places is a multiple of 8, because every new one costs some twenty new
// oneDNN primitives, a millisecond each.
std::vector<Index> PairsWithGradient(const std::vector<float>& dlog_probs) {
  constexpr Index kMultiple = 8;
  const auto live = [&](Index b) { return dlog_probs[static_cast<std::size_t>(b)] != 0.0f; };
  const Index batch = static_cast<Index>(dlog_probs.size());
  Index count = 0;
  for (Index b = 0; b < batch; ++b) count += live(b);
  const Index places = std::min(batch, (count + kMultiple - 1) / kMultiple * kMultiple);
  std::vector<Index> kept;
  Index next = places;
  for (Index place = 0; place < places; ++place) {
    while (!live(place) && next < batch && !live(next)) ++next;
    kept.push_back(live(place) || next == batch ? place : next++);
  }
  return kept;
}

}  // namespace

// Sums over pairs, of one update or of a whole iteration.
struct Trainer::Sums {
  double pairs = 0, loss = 0, kl = 0, log_ratio_squared = 0, clipped_high = 0, clipped_low = 0;
  double ratio = 0, ratio_deviation = 0, ratio_max = 0;  // ratio_max: largest |ratio - 1|
};

Trainer::Trainer(const Config& config, const std::shared_ptr<const DitLayout>& layout, const ModelWeights& weights,
                 const TextCondition& negative, TrainerGroup& group)
    : config_(config),
      model_(weights),
      group_(group),
      velocity_(layout, config.sampler.guidance, negative, config.model.recompute),
      reference_(layout, config.sampler.guidance, negative, false),
      image_shape_{1, config.sampler.height / 16, config.sampler.width / 16},
      latent_size_(image_shape_.tokens() * layout->config().in_channels) {}

OptimizerState Trainer::InitialState(const Config& config, std::vector<float> weights) {
  OptimizerState state;
  state.first_moment.assign(weights.size(), 0.0f);
  state.second_moment.assign(weights.size(), 0.0f);
  if (config.train.ema_decay > 0) state.ema = weights;
  state.weights = std::move(weights);
  return state;
}

void Trainer::SetState(const OptimizerState& state) {
  const auto fill = [](const std::vector<float>& host, Buffer& buffer) {
    buffer.Resize(static_cast<Index>(host.size()));
    buffer.CopyFromHost(host);
  };
  SPOTLIGHT_REQUIRE(static_cast<Index>(state.weights.size()) == model_.trained_layout().size(), "another layout");
  fill(state.weights, weights_);
  fill(state.first_moment, first_moment_);
  fill(state.second_moment, second_moment_);
  fill(state.ema, ema_);
  gradient_.Resize(weights_.size());
  updates_ = state.updates;
}

OptimizerState Trainer::State() const {
  const auto copy = [](const Buffer& buffer) {
    std::vector<float> host(static_cast<std::size_t>(buffer.size()));
    buffer.CopyToHost(host);
    return host;
  };
  return {copy(weights_), copy(first_moment_), copy(second_moment_), copy(ema_), updates_};
}

std::vector<float> Trainer::Weights() const {
  std::vector<float> host(static_cast<std::size_t>(weights_.size()));
  weights_.CopyToHost(host);
  return host;
}

std::vector<float> Trainer::EmaWeights() const {
  std::vector<float> host(static_cast<std::size_t>(ema_.size()));
  ema_.CopyToHost(host);
  return host;
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

std::vector<std::vector<Trainer::Pair>> Trainer::ByTextLength(std::span<const Pair> pairs,
                                                              const std::vector<TextCondition>& conditions) {
  std::map<Index, std::vector<Pair>> by_length;
  for (const Pair& pair : pairs) by_length[conditions[pair.sample->sample.request.prompt_index].tokens].push_back(pair);
  std::vector<std::vector<Pair>> groups;
  groups.reserve(by_length.size());
  for (auto& [tokens, group] : by_length) groups.push_back(std::move(group));
  return groups;
}

std::map<std::string, double> Trainer::Train(std::uint32_t iteration, const std::vector<TrainSample>& samples,
                                             const std::vector<TextCondition>& conditions) {
  const std::vector<Pair> pairs = ShuffledPairs(iteration, samples);
  const std::size_t updates = static_cast<std::size_t>(config_.train.updates);
  const std::size_t micro = static_cast<std::size_t>(config_.train.micro_batch);
  Sums total;
  double first_max = 0, first_mean = 0, grad_norm = 0;
  int applied = 0;
  for (std::size_t update = 0; update < updates; ++update) {
    const std::size_t begin = pairs.size() * update / updates, end = pairs.size() * (update + 1) / updates;
    if (begin == end) continue;
    gradient_.Zero();
    Sums sums;
    for (std::size_t from = begin, j = 0; from < end; from += micro, ++j) {
      if (static_cast<int>(j % static_cast<std::size_t>(group_.size())) != group_.index()) continue;
      const std::span<const Pair> batch = std::span(pairs).subspan(from, std::min(micro, end - from));
      for (const std::vector<Pair>& of_one_length : ByTextLength(batch, conditions)) {
        MicroBatch(of_one_length, 1.0 / static_cast<double>(end - begin), conditions, sums);
      }
    }
    if (group_.size() > 1) {
      group_.SumInOrder({gradient_.data(), static_cast<std::size_t>(gradient_.size())});
      for (double* value : {&sums.pairs, &sums.loss, &sums.kl, &sums.log_ratio_squared, &sums.clipped_high,
                            &sums.clipped_low, &sums.ratio, &sums.ratio_deviation}) {
        *value = group_.SumDouble(*value);
      }
      sums.ratio_max = group_.MaxDouble(sums.ratio_max);
    }
    if (applied == 0) {  // nothing has been updated yet: every ratio must be exactly one
      first_max = sums.ratio_max;
      first_mean = sums.ratio / sums.pairs;
    }
    grad_norm += ApplyUpdate();
    ++applied;
    total.pairs += sums.pairs;
    total.loss += sums.loss;
    total.kl += sums.kl;
    total.log_ratio_squared += sums.log_ratio_squared;
    total.clipped_high += sums.clipped_high;
    total.clipped_low += sums.clipped_low;
    total.ratio += sums.ratio;
    total.ratio_deviation += sums.ratio_deviation;
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

void Trainer::MicroBatch(const std::vector<Pair>& pairs, double pair_weight,
                         const std::vector<TextCondition>& conditions, Sums& sums) {
  const Index batch = static_cast<Index>(pairs.size()), n = latent_size_;
  std::vector<float> x(static_cast<std::size_t>(batch * n)), x_next(x.size());
  std::vector<StepCoefficients> coefficients;
  VelocityInput input{.batch = batch, .image_shape = image_shape_};
  for (std::size_t b = 0; b < pairs.size(); ++b) {
    const Sample& sample = pairs[b].sample->sample;
    const auto from = sample.latents.begin() + pairs[b].step * n;
    std::copy(from, from + n, x.begin() + static_cast<Index>(b) * n);
    std::copy(from + n, from + 2 * n, x_next.begin() + static_cast<Index>(b) * n);
    coefficients.push_back(sample.steps[static_cast<std::size_t>(pairs[b].step)]);
    input.conditions.push_back(&conditions[sample.request.prompt_index]);
    const float sigma = coefficients.back().sigma;
    const auto level = std::find(input.levels.begin(), input.levels.end(), sigma);
    input.level_index.push_back(static_cast<int>(level - input.levels.begin()));
    if (level == input.levels.end()) input.levels.push_back(sigma);
  }
  for (Buffer* buffer : {&x_, &x_next_, &v_, &dv_}) buffer->Resize(batch * n);
  x_.CopyFromHost(x);
  x_next_.CopyFromHost(x_next);
  input.latents = x_.data();
  const ParameterMemory memory = model_.Memory(weights_.data(), gradient_.data());
  velocity_.Forward(memory, input, true, v_.data());
  Buffer log_prob(batch), kl(batch), dlog_prob(batch), dkl(batch);
  LogProb(batch, n, coefficients.data(), x_.data(), v_.data(), x_next_.data(), log_prob.data());
  std::vector<float> log_probs(pairs.size()), kls(pairs.size(), 0.0f), dlog_probs(pairs.size());
  log_prob.CopyToHost(log_probs);
  const bool with_kl = config_.train.kl_beta > 0;
  if (with_kl) {
    v_reference_.Resize(batch * n);
    reference_.Forward(model_.BaseMemory(), input, false, v_reference_.data());
    StepKl(batch, n, coefficients.data(), v_.data(), v_reference_.data(), kl.data());
    kl.CopyToHost(kls);
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
  dlog_prob.CopyFromHost(dlog_probs);
  const std::vector<float> dkls(pairs.size(), static_cast<float>(config_.train.kl_beta * pair_weight));
  dkl.CopyFromHost(dkls);
  LogProbBackward(batch, n, coefficients.data(), x_.data(), v_.data(), x_next_.data(),
                  with_kl ? v_reference_.data() : nullptr, dlog_prob.data(), dkl.data(), dv_.data());
  if (!with_kl) {
    // The clip takes the gradient of a fifth to a half of the pairs after the first update. Their terms of the sums are
    // exact zeros, and twice the work of the forward pass.
    const std::vector<Index> kept = PairsWithGradient(dlog_probs);
    if (kept.empty()) return;
    velocity_.KeepSamples(kept);
    for (Index place = 0; place < static_cast<Index>(kept.size()); ++place) {
      for (Buffer* buffer : {&x_, &dv_}) CopyRow(*buffer, batch, kept[static_cast<std::size_t>(place)], place);
    }
  }
  velocity_.Backward(memory, dv_.data());
}

double Trainer::ApplyUpdate() {
  const TrainConfig& train = config_.train;
  const double norm = std::sqrt(SquaredNorm(gradient_.size(), gradient_.data()));
  const bool clip = train.grad_norm > 0 && norm > train.grad_norm;
  const double scale = clip ? train.grad_norm / (norm + 1e-6) : 1.0;  // torch.nn.utils.clip_grad_norm_'s form
  const AdamWSettings settings{static_cast<float>(train.lr), static_cast<float>(train.beta1),
                               static_cast<float>(train.beta2), static_cast<float>(train.eps),
                               static_cast<float>(train.weight_decay)};
  AdamWUpdate(settings, ++updates_, weights_.size(), static_cast<float>(scale), gradient_.data(), weights_.data(),
              first_moment_.data(), second_moment_.data());
  if (ema_.size() > 0) {
    // A young average follows closely: decay (1 + n) / (10 + n) up to the asked one (Flow-GRPO's ema.py rule).
    const double n = static_cast<double>(updates_);
    EmaUpdate(weights_.size(), static_cast<float>(std::min(train.ema_decay, (1 + n) / (10 + n))), weights_.data(),
              ema_.data());
  }
  return norm;
}

}  // namespace spotlight
