#include "driver/worker.hpp"

#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "base/log.hpp"
#include "io/state_file.hpp"

namespace spotlight {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Adds the life of the object to one use of this worker's time.
class Stopwatch {
 public:
  Stopwatch(std::vector<double>& busy_seconds, Use use) : seconds_(busy_seconds[static_cast<std::size_t>(use)]) {}
  ~Stopwatch() { seconds_ += Now() - start_; }

 private:
  double& seconds_;
  double start_ = Now();
};

Use UseOf(RequestKind kind) {
  if (kind == RequestKind::kExplore) return Use::kExploration;
  return kind == RequestKind::kEvaluate ? Use::kEvaluation : Use::kRollout;
}

}  // namespace

Worker::Worker(const Config& config, const Resources& resources, World& world, std::uint64_t run_id,
               const OptimizerState& state)
    : config_(config),
      resources_(resources),
      world_(world),
      run_id_(run_id),
      weights_(resources.layout, resources.base_weights),
      sampler_(config, resources.scheduler, resources.layout, resources.negative) {
  if (world.role() != Role::kTrainer && world.role() != Role::kAll) return;
  trainer_group_ = std::make_unique<TrainerGroup>(world);
  trainer_ = std::make_unique<Trainer>(config, resources.layout, weights_, resources.negative, *trainer_group_);
  trainer_->SetState(state);
}

Message Worker::Call(Client& coordinator, const Message& message) {
  return Decode(coordinator.Call(Encode(message, run_id_)), run_id_);
}

bool Worker::Turn(Client& coordinator) {
  const Pull pull{static_cast<std::uint32_t>(world_.rank()), world_.role(),
                  static_cast<std::uint32_t>(config_.sampler.batch), busy_seconds_};
  const Message reply = Call(coordinator, pull);
  busy_seconds_.assign(kUses, 0.0);
  if (const auto* work = std::get_if<Work>(&reply)) {
    Denoise(coordinator, work->requests);
  } else if (const auto* train = std::get_if<Train>(&reply)) {
    Trained trained{train->iteration, {}, std::uint64_t{train->iteration} + 1, {}, {}};
    {
      const Stopwatch stopwatch(busy_seconds_, Use::kTraining);
      trained.metrics = trainer_->Train(train->iteration, train->samples, resources_.train.conditions);
      trained.weights = trainer_->Weights();
      trained.ema_weights = trainer_->EmaWeights();
    }
    Call(coordinator, std::move(trained));
  } else if (const auto* save = std::get_if<Save>(&reply)) {
    SaveOptimizerState(trainer_->State(), save->path);
    Call(coordinator, Saved{});
  } else if (const auto* wait = std::get_if<Wait>(&reply)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(wait->milliseconds));
  } else if (std::holds_alternative<Finish>(reply)) {
    return false;
  } else {
    SPOTLIGHT_REQUIRE(false, "the coordinator's reply is none of a pull's");
  }
  return true;
}

int Worker::Run(Client& coordinator) {
  try {
    while (Turn(coordinator)) {
    }
    return kExitFinished;
  } catch (const CoordinatorLost&) {
    throw;
  } catch (const std::exception& error) {
    int code = kExitInternal;
    if (dynamic_cast<const FileError*>(&error) != nullptr) code = kExitFile;
    if (dynamic_cast<const PeerLost*>(&error) != nullptr) code = kExitStopped;
    LogWarning(error.what());
    Call(coordinator, Failed{ProcessName() + ": " + error.what(), code, static_cast<std::uint32_t>(world_.rank())});
    return code;
  }
}

void Worker::FetchMissingWeights(Client& coordinator, const WeightKey& key) {
  if (weights_.Has(key)) return;
  const Message reply = Call(coordinator, FetchWeights{key.version, key.ema});
  const auto* weights = std::get_if<Weights>(&reply);
  SPOTLIGHT_REQUIRE(weights != nullptr && weights->version == key.version && weights->ema == key.ema,
                    "the coordinator has other weights than its requests ask for");
  SPOTLIGHT_REQUIRE(weights->checksum == Checksum(weights->values), "weights changed on the way");
  weights_.Put(key, weights->values);
}

void Worker::Denoise(Client& coordinator, const std::vector<Request>& requests) {
  const Request& first = requests.front();
  const WeightKey key = RequestWeights(first, config_.train.ema_decay > 0);
  FetchMissingWeights(coordinator, key);
  Push push{static_cast<std::uint32_t>(world_.rank()), {}};
  {
    const Stopwatch stopwatch(busy_seconds_, UseOf(first.kind));
    const ConditionedPrompts& prompts = first.kind == RequestKind::kEvaluate ? resources_.eval : resources_.train;
    std::vector<Denoised> denoised = sampler_.Denoise(weights_.Memory(key), requests, prompts);
    const ImageShape shape = sampler_.image_shape();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      Sample sample{.request = requests[i], .rank = push.rank};
      Image image = resources_.vae->Decode(denoised[i].latents, shape.height, shape.width);
      RewardScore score = resources_.reward->Score(prompts.prompts[requests[i].prompt_index], image);
      sample.reward = score.total;
      sample.terms = std::move(score.terms);
      sample.latents = std::move(denoised[i].trajectory);
      sample.log_probs = std::move(denoised[i].log_probs);
      sample.steps = std::move(denoised[i].steps);
      if (requests[i].keep_image) sample.image = std::move(image);
      push.samples.push_back(std::move(sample));
    }
  }
  Call(coordinator, push);
}

void SaveOptimizerState(const OptimizerState& state, const std::string& folder) {
  StateFile file;
  file.Put("weights", std::span<const float>(state.weights));
  file.Put("first_moment", std::span<const float>(state.first_moment));
  file.Put("second_moment", std::span<const float>(state.second_moment));
  file.Put("ema", std::span<const float>(state.ema));
  const std::int64_t updates = state.updates;
  file.Put("updates", std::span<const std::int64_t>(&updates, 1));
  file.Save(folder + "/trainer.h5");
}

OptimizerState LoadOptimizerState(const std::string& folder) {
  const StateFile file = StateFile::Load(folder + "/trainer.h5");
  return {file.Floats("weights"), file.Floats("first_moment"), file.Floats("second_moment"), file.Floats("ema"),
          file.Ints("updates").at(0)};
}

}  // namespace spotlight
