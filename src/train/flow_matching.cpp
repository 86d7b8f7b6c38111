#include "train/flow_matching.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "base/prompt.hpp"
#include "base/random.hpp"
#include "kernels/optimizer.hpp"
#include "model/weight_storage.hpp"

namespace spotlight {
namespace {

constexpr std::uint64_t kNoiseStream = 0x666c6f77ULL, kTimeStream = 0x74696d65ULL, kInitStream = 0x696e6974ULL;
constexpr int kWarmUpSteps = 100;
constexpr float kMomentum = 0.95f;

bool UsesMuon(const Parameter& parameter) {
  return parameter.shape.size() == 2 && parameter.name.starts_with("transformer_blocks.") &&
         parameter.name.find("_mod.") == std::string::npos;
}

bool StartsAtZero(const Parameter& parameter) {
  return parameter.name.ends_with(".bias") || parameter.name.find("_mod.") != std::string::npos ||
         parameter.name.starts_with("norm_out.") || parameter.name.starts_with("proj_out.");
}

}  // namespace

FlowMatchingTrainer::FlowMatchingTrainer(const Config& config, std::shared_ptr<const DitLayout> layout, int words)
    : config_(config), layout_(std::move(layout)), words_(words), dit_(layout_, config.model.ActivationType()) {}

FlowMatchingTrainer::State FlowMatchingTrainer::InitialState() const {
  State state;
  const Index transformer = layout_->base().size(), table = Index{1} * words_ * layout_->config().joint_attention_dim;
  state.weights.assign(static_cast<std::size_t>(transformer + table), 0.0f);
  for (const Parameter& parameter : layout_->base().parameters()) {
    float* values = state.weights.data() + parameter.offset;
    if (StartsAtZero(parameter)) continue;
    if (parameter.shape.size() == 1) {  // norm weights
      std::fill(values, values + parameter.size, 1.0f);
      continue;
    }
    const double limit = std::sqrt(6.0 / static_cast<double>(parameter.shape[0] + parameter.shape[1]));
    const std::uint64_t key = StreamKey({kInitStream, config_.run.seed, PromptId(parameter.name)});
    for (Index i = 0; i < parameter.size; ++i) {
      values[i] = static_cast<float>(limit * (2.0 * UniformDouble(key, static_cast<std::uint64_t>(i)) - 1.0));
    }
  }
  FillNormal(StreamKey({kInitStream, config_.run.seed, PromptId("embed_tokens.weight")}), 0,
             {state.weights.data() + transformer, static_cast<std::size_t>(table)});
  state.ema = state.weights;
  state.first_moment.assign(state.weights.size(), 0.0f);
  state.second_moment.assign(state.weights.size(), 0.0f);
  return state;
}

void FlowMatchingTrainer::SetState(const State& state) {
  const auto fill = [](const std::vector<float>& host, Buffer& buffer) {
    buffer.Resize(static_cast<Index>(host.size()));
    buffer.CopyFromHost(host);
  };
  fill(state.weights, weights_);
  fill(state.ema, ema_);
  fill(state.first_moment, first_moment_);
  fill(state.second_moment, second_moment_);
  gradient_.Resize(weights_.size());
  step_ = state.step;
}

FlowMatchingTrainer::State FlowMatchingTrainer::GetState() const {
  const auto copy = [](const Buffer& buffer) {
    std::vector<float> host(static_cast<std::size_t>(buffer.size()));
    buffer.CopyToHost(host);
    return host;
  };
  return {copy(weights_), copy(ema_), copy(first_moment_), copy(second_moment_), step_};
}

double FlowMatchingTrainer::Step(const std::vector<FlowExample>& batch, ImageShape shape) {
  const Index size = static_cast<Index>(batch.size()), width = layout_->config().joint_attention_dim;
  const Index n = shape.tokens() * layout_->config().in_channels, tokens = static_cast<Index>(batch[0].tokens.size());
  std::vector<float> state(static_cast<std::size_t>(weights_.size()));
  std::vector<float> x(static_cast<std::size_t>(size * n)), target(x.size()), noise(static_cast<std::size_t>(n));
  std::vector<float> text(static_cast<std::size_t>(size * tokens * width));
  std::vector<float> table(static_cast<std::size_t>(words_ * width));
  weights_.CopyToHost(state);
  std::copy(state.begin() + transformer_size(), state.end(), table.begin());
  DitInput input{.text_tokens = std::vector<Index>(batch.size(), tokens), .images = {shape}};
  const std::uint64_t step = static_cast<std::uint64_t>(step_);
  for (Index b = 0; b < size; ++b) {
    const FlowExample& example = batch[static_cast<std::size_t>(b)];
    SPOTLIGHT_REQUIRE(static_cast<Index>(example.latents.size()) == n, "latents of another size");
    const std::uint64_t sample = static_cast<std::uint64_t>(b);
    FillNormal(StreamKey({kNoiseStream, config_.run.seed, step, sample}), 0, noise);
    float normal[4];
    const std::uint64_t time_key = StreamKey({kTimeStream, config_.run.seed, step, sample});
    FillNormal(time_key, 0, normal);
    const double logistic = 1.0 / (1.0 + std::exp(-static_cast<double>(normal[0])));
    const bool fourth = (step * static_cast<std::uint64_t>(size) + sample) % 4 == 0;
    const float t = static_cast<float>(fourth ? UniformDouble(time_key, 1) : logistic);
    input.levels.push_back(t);
    input.level_index.push_back(static_cast<int>(b));
    for (Index i = 0; i < n; ++i) {
      const std::size_t at = static_cast<std::size_t>(b * n + i), from = static_cast<std::size_t>(i);
      x[at] = (1.0f - t) * example.latents[from] + t * noise[from];
      target[at] = noise[from] - example.latents[from];
    }
    for (Index j = 0; j < tokens; ++j) {
      const auto row = table.begin() + example.tokens[static_cast<std::size_t>(j)] * width;
      std::copy(row, row + width, text.begin() + (b * tokens + j) * width);
    }
  }
  for (Buffer* buffer : {&x_, &v_, &dv_}) buffer->Resize(size * n);
  text_.Resize(size * tokens * width);
  dtext_.Resize(size * tokens * width);
  x_.CopyFromHost(x);
  text_.CopyFromHost(text);
  input.image = x_.data();
  input.text = text_.data();
  gradient_.Zero();
  FlatParameters parameters(*layout_, weights_.data(), gradient_.data());
  dit_.Forward(parameters, input, {.keep = true, .recompute = config_.model.recompute}, v_.data());

  std::vector<float> v(x.size()), dv(x.size());
  v_.CopyToHost(v);
  double loss = 0;
  const float scale = 2.0f / static_cast<float>(size * n);
  for (std::size_t i = 0; i < v.size(); ++i) {
    const float difference = v[i] - target[i];
    loss += static_cast<double>(difference) * difference;
    dv[i] = scale * difference;
  }
  dv_.CopyFromHost(dv);
  dit_.Backward(parameters, input, dv_.data(), {.image = nullptr, .text = dtext_.data()});
  dtext_.CopyToHost(text);
  std::vector<float> dtable(table.size(), 0.0f);
  for (Index b = 0; b < size; ++b) {
    for (Index j = 0; j < tokens; ++j) {
      const Index word = batch[static_cast<std::size_t>(b)].tokens[static_cast<std::size_t>(j)];
      for (Index c = 0; c < width; ++c) {
        dtable[static_cast<std::size_t>(word * width + c)] +=
            text[static_cast<std::size_t>((b * tokens + j) * width + c)];
      }
    }
  }
  std::vector<float> gradient(static_cast<std::size_t>(gradient_.size()));
  gradient_.CopyToHost(gradient);
  std::copy(dtable.begin(), dtable.end(), gradient.begin() + transformer_size());
  gradient_.CopyFromHost(gradient);
  Optimize();
  return loss / static_cast<double>(v.size());
}

bool FlowMatchingTrainer::finite() const { return AllFinite(weights_.size(), weights_.data()); }

void FlowMatchingTrainer::Optimize() {
  ++step_;
  const PretrainConfig& pretrain = config_.pretrain;
  const double norm = std::sqrt(SquaredNorm(gradient_.size(), gradient_.data()));
  const float scale = static_cast<float>(norm > 1.0 ? 1.0 / (norm + 1e-6) : 1.0);
  // Constant after a warm-up, then linear to zero over the last two fifths.
  const double left = 1.0 - static_cast<double>(step_) / pretrain.steps;
  const double factor = std::min({1.0, static_cast<double>(step_) / kWarmUpSteps, std::max(0.02, left / 0.4)});
  const AdamWSettings adam{.lr = pretrain.lr * factor, .beta1 = 0.9, .beta2 = 0.99};
  const auto adam_range = [&](Index begin, Index end) {
    if (begin == end) return;
    AdamWUpdate(adam, step_, end - begin, scale, gradient_.data() + begin, weights_.data() + begin,
                first_moment_.data() + begin, second_moment_.data() + begin);
  };
  Index adam_begin = 0;  // of the run of parameters that AdamW updates together
  for (const Parameter& parameter : layout_->base().parameters()) {
    if (!UsesMuon(parameter)) continue;
    adam_range(adam_begin, parameter.offset);
    adam_begin = parameter.offset + parameter.size;
    muon_.Update(parameter.shape[0], parameter.shape[1], static_cast<float>(pretrain.matrix_lr * factor), kMomentum,
                 scale, gradient_.data() + parameter.offset, weights_.data() + parameter.offset,
                 first_moment_.data() + parameter.offset);
  }
  adam_range(adam_begin, weights_.size());
  const double n = static_cast<double>(step_);
  EmaUpdate(weights_.size(), std::min(pretrain.ema_decay, (1 + n) / (10 + n)), weights_.data(), ema_.data());
}

}  // namespace spotlight
