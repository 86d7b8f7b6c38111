#include "driver/worker.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "driver/computing.hpp"
#include "driver/dispatch.hpp"
#include "driver/failure.hpp"
#include "io/state_file.hpp"
#include "kernels/stream.hpp"
#include "rollout/schedule.hpp"
#include "schedule/commit_interval.hpp"

namespace spotlight {
namespace {

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Adds the life of the object to one use of this worker's time, and shows it as a phase.
class Stopwatch {
 public:
  Stopwatch(std::vector<double>& busy_seconds, Use use)
      : seconds_(busy_seconds[static_cast<std::size_t>(use)]), phase_(UseName(use).data()) {}  // names are literals
  ~Stopwatch() { seconds_ += Now() - start_; }

 private:
  double& seconds_;
  Phase phase_;
  double start_ = Now();
};

// What `work` returns, as a phase.
template <typename Work>
auto During(const char* name, const Work& work) {
  const Phase phase(name);
  return work();
}

// Nobody needs the batch in work any more.
struct BatchDropped {};

Use UseOf(RequestKind kind) {
  if (kind == RequestKind::kExplore) return Use::kExploration;
  return kind == RequestKind::kEvaluate ? Use::kEvaluation : Use::kRollout;
}

}  // namespace

// Commits, and gives the caller of the worker the word, between two steps of a batch. A commit is posted as soon as its
// latents have come from the kernels' memory: on the CPU at its own border, on a device while the next step runs.
class Worker::Border : public StepBorder {
 public:
  // steps: done of the batch at its start.
  Border(Worker& worker, const Lines& lines, const std::vector<Request>& requests, int steps)
      : worker_(worker), lines_(lines), requests_(requests), committed_(steps) {}
  // A batch that ends otherwise than it should has got so far nevertheless.
  ~Border() {
    try {
      Post();
    } catch (const std::exception&) {  // what ended the batch counts
    }
  }

  void At(int steps, BatchStates* states) override {
    Failpoint("denoise.step");
    if (requests_[0].kind == RequestKind::kExplore) Failpoint("explore.step");
    // On a device a batch is at its first border before the step has run: then the last batch's time is the better one.
    if (borders_++ > 0 || worker_.step_seconds_ == 0) worker_.step_seconds_ = Now() - last_;
    worker_.sample_steps_ += requests_.size();
    Post();
    if (steps - committed_ >= Interval()) {
      Copy(steps, states);
      if (under_way_ != nullptr && under_way_->Ready()) Post();
    }
    const auto commit = [&] {
      Copy(steps, states);
      Post();
    };
    if (worker_.at_border_(Unwanted(), commit)) {
      under_way_ = nullptr;
      throw BatchDropped{};
    }
    last_ = Now();
  }

  // The commit that is under way, if there is one: waits for its latents.
  void Post() {
    BatchStates* const states = std::exchange(under_way_, nullptr);
    if (states == nullptr) return;
    const double start = Now();
    const Phase phase("commit");
    CommitStates message{worker_.rank_, requests_, states->Take()};
    DamagePoint("commit.latents", std::as_writable_bytes(std::span(message.states[0].latents)));
    lines_.own.Post(Encode(message, worker_.run_id_));  // one that finds no room is made up for by the next
    Failpoint("commit.posted");
    worker_.commit_seconds_ += Now() - start;
  }

 private:
  void Copy(int steps, BatchStates* states) {
    if (committed_ == steps || states == nullptr) return;  // nothing new, or nothing to go on from
    const double start = Now();
    if (worker_.leads()) {
      Failpoint("commit.begin");
      Post();  // of an earlier border
      states->Start();
      under_way_ = states;
    }
    committed_ = steps;
    worker_.commit_seconds_ = Now() - start;
  }

  // Whether the coordinator has said so: to the leader.
  bool Unwanted() const {
    if (!worker_.leads()) return false;
    if (const std::optional<Bytes> heard = lines_.own.Heard()) {
      const Message message = Decode(*heard, worker_.run_id_);
      if (const auto* drop = std::get_if<Drop>(&message)) worker_.dropped_[drop->kind] = drop->last_id;
    }
    const auto found = worker_.dropped_.find(requests_[0].kind);
    return found != worker_.dropped_.end() && requests_[0].id <= found->second;
  }

  int Interval() const {
    if (worker_.config_.store.commit_every > 0) return worker_.config_.store.commit_every;
    constexpr double kLossesPerSecond = 0.6 / 3600;  // a usual rate of spot machines
    return StepsBetweenCommits({worker_.step_seconds_, worker_.commit_seconds_, kLossesPerSecond},
                               worker_.sampler_.StepsOf(requests_[0].kind));
  }

  Worker& worker_;
  const Lines& lines_;
  const std::vector<Request>& requests_;
  int committed_;                     // steps
  BatchStates* under_way_ = nullptr;  // of them, not posted yet
  int borders_ = 0;
  double last_ = Now();
};

Worker::Worker(const Config& config, const Resources& resources, World& world, std::uint32_t rank, std::uint64_t run_id,
               NodeMemory* node, const OptimizerState& state, SequenceGroup* group, AtBorder at_border)
    : config_(config),
      resources_(resources),
      world_(world),
      rank_(rank),
      run_id_(run_id),
      group_(group),
      at_border_(std::move(at_border)),
      weights_(resources.model.layout, resources.model.weights, MakePrecision(config.model),
               config.lora.rank > 0 ? NetworkSigmas(config, resources.model.scheduler) : std::vector<float>(),
               config.train.ema_decay > 0 ? 2 : 1,  // rollout and evaluation weights of one iteration
               node),
      sampler_(config, resources.model.scheduler, resources.model.layout, {}),
      train_(WithoutConditions(resources.train)),
      eval_(WithoutConditions(resources.eval)) {
  if (world.role() == Role::kExplorer) exchange_.emplace(world.host(), run_id, rank);
  if (world.role() != Role::kTrainer && world.role() != Role::kAll) return;
  trainer_group_ = std::make_unique<TrainerGroup>(world);
  ConnectTrainers(config, *trainer_group_);
  trainer_ = std::make_unique<Trainer>(config, resources.model.layout, weights_, *trainer_group_, group);
  trainer_->trained().SetState(state);
}

Message Worker::Call(Client& coordinator, const Message& message) {
  Message reply = Decode(coordinator.Call(Encode(message, run_id_)), run_id_);
  // What the leader did alone, as scoring, has failed.
  if (const auto* failed = std::get_if<Failed>(&reply); failed != nullptr && !leads()) {
    throw RunFailed(failed->text, failed->exit_code);
  }
  return reply;
}

bool Worker::Turn(const Lines& lines, const std::vector<std::uint32_t>& members) {
  const Message reply = Call(lines.shared, Pull{.rank = rank_,
                                                .role = world_.role(),
                                                .capacity = static_cast<std::uint32_t>(config_.sampler.batch),
                                                .busy_seconds = busy_seconds_,
                                                .members = members,
                                                .sample_steps = sample_steps_});
  busy_seconds_.assign(kUses, 0.0);
  sample_steps_ = 0;
  const auto hear = [this](std::uint32_t degree) {
    if (degree > 0) wanted_degree_ = static_cast<int>(degree);
  };
  if (const auto* work = std::get_if<Work>(&reply)) {
    hear(work->degree);
    try {
      Denoise(lines, *work);
    } catch (const BatchDropped&) {  // the next pull gives it back
    }
  } else if (const auto* train = std::get_if<Train>(&reply)) {
    TrainIteration(lines, *train);
  } else if (const auto* save = std::get_if<Save>(&reply)) {
    const bool writes = trainer_group_->index() == 0;
    const OptimizerState state = trainer_->trained().State(writes);  // collective
    if (writes) SaveOptimizerState(state, save->path);
    Call(lines.shared, Saved{});
  } else if (const auto* wait = std::get_if<Wait>(&reply)) {
    hear(wait->degree);
    std::this_thread::sleep_for(std::chrono::milliseconds(wait->milliseconds));
  } else if (std::holds_alternative<Finish>(reply)) {
    return false;
  } else {
    SPOTLIGHT_REQUIRE(false, "the coordinator's reply is none of a pull's");
  }
  return true;
}

int Worker::Run(const Lines& lines, const std::vector<std::uint32_t>& members) {
  try {
    while (Turn(lines, members)) {
    }
    return kExitFinished;
  } catch (const CoordinatorLost&) {
    throw;
  } catch (const std::exception& error) {
    return Report(lines, error);
  }
}

int Worker::Report(const Lines& lines, const std::exception& error) {
  const auto& [code, text] = DescribeFailure(error);
  LogWarning(text);
  if (dynamic_cast<const RunFailed*>(&error) != nullptr) return code;
  // A follower's loss is noticed. An internal error may have come in the middle of a pass: no message can follow it.
  if (!leads() || (group_ != nullptr && group_->size() > 1 && code == kExitInternal)) throw;
  lines.shared.Call(Encode(Failed{ProcessName() + ": " + text, code, rank_}, run_id_));
  return code;
}

void Worker::FetchMissingPrompts(Client& own, TextList list, const std::vector<Request>& requests) {
  constexpr std::size_t kMostKept = 512;  // conditions of a list: of a 1280-pixel prompt about a megabyte each
  ConditionedPrompts& prompts = list == TextList::kTrain ? train_ : eval_;
  std::set<std::uint32_t> needed;
  for (const Request& request : requests) needed.insert(request.prompt_index);
  std::size_t kept = 0;
  for (const TextCondition& condition : prompts.conditions) kept += condition.tokens > 0 ? 1 : 0;
  FetchPrompts fetch{list, {}};
  for (const std::uint32_t index : needed) {
    if (prompts.conditions.at(index).tokens == 0) fetch.indices.push_back(index);
  }
  if (kept + fetch.indices.size() > kMostKept) {
    for (std::size_t i = 0; i < prompts.conditions.size(); ++i) {
      if (!needed.contains(static_cast<std::uint32_t>(i))) prompts.conditions[i] = {};
    }
  }
  const auto ask = [&](const FetchPrompts& question) {
    Message reply = Call(own, question);
    auto* answer = std::get_if<Prompts>(&reply);
    SPOTLIGHT_REQUIRE(answer != nullptr, "the coordinator's reply is not of prompts");
    return std::move(answer->entries);
  };
  if (!fetch.indices.empty()) {
    for (PromptEmbedding& entry : ask(fetch)) {
      prompts.conditions.at(entry.index) = {entry.tokens, std::move(entry.embedding)};
    }
  }
  if (negative_known_ || config_.sampler.guidance <= 1) return;
  const std::vector<PromptEmbedding> negative = ask({TextList::kNegative, {0}});
  const TextCondition condition{negative.at(0).tokens, negative[0].embedding};
  sampler_.SetNegative(condition);
  if (trainer_ != nullptr) trainer_->SetNegative(condition);
  negative_known_ = true;
}

std::vector<TrainSample> Worker::FetchSamples(Client& coordinator, std::uint64_t count) {
  std::vector<TrainSample> samples;
  while (samples.size() < count) {
    Message reply = Call(coordinator, spotlight::FetchSamples{samples.size()});
    auto* piece = std::get_if<Samples>(&reply);
    SPOTLIGHT_REQUIRE(piece != nullptr && !piece->samples.empty(), "the coordinator's reply is not of samples");
    std::move(piece->samples.begin(), piece->samples.end(), std::back_inserter(samples));
  }
  return samples;
}

void Worker::TrainIteration(const Lines& lines, const Train& train) {
  const std::vector<TrainSample> samples = FetchSamples(lines.shared, train.samples);
  std::vector<Request> requests;
  for (const TrainSample& sample : samples) requests.push_back(sample.sample.request);
  FetchMissingPrompts(lines.own, TextList::kTrain, requests);
  // The group of the first trainer pushes the weights: every member makes the calls, its leader's are sent.
  const bool pushes = trainer_group_->index() < (group_ == nullptr ? 1 : group_->size());
  Trained trained{train.iteration, {}, std::uint64_t{train.iteration} + 1, {}, {}};
  std::vector<float> weights, ema;
  {
    const Stopwatch stopwatch(busy_seconds_, Use::kTraining);
    Failpoint("train.begin");
    trained.metrics = trainer_->Train(train.iteration, samples, train_.conditions);
    weights = trainer_->trained().Weights(pushes);  // collective
    ema = trainer_->trained().EmaWeights(pushes);
  }
  if (pushes) {
    const MessageCall call = [&](const Message& message) { return Call(lines.shared, message); };
    Failpoint("train.push");
    const Phase phase("push weights");
    const double start = Now();
    PushInPieces(call, trained.next_version, false, weights);
    PushInPieces(call, trained.next_version, true, ema);
    trained.metrics["time_push_s"] = Now() - start;
  }
  Call(lines.shared, std::move(trained));
}

void Worker::FetchMissingWeights(Client& own, const WeightKey& key) {
  if (weights_.Has(key)) return;
  const Phase phase("fetch weights");
  Failpoint("weights.wanted");
  const auto withdraw = [this] {
    if (exchange_) exchange_->Withdraw();
  };
  const auto fetch = [&](std::span<float> values) {
    const MessageCall call = [&](const Message& message) {
      Failpoint("weights.piece");
      return Call(own, message);
    };
    if (exchange_) {
      exchange_->Fetch(call, key.version, key.ema, values);
      if (!weights_.lora()) exchange_->Withdraw();  // a whole model is kept in another form
    } else {
      FetchInPieces(call, {rank_, key.version, key.ema, ""}, values);
    }
    Failpoint("weights.fetched");
  };
  withdraw();  // Load lets go of what is served
  // By its own line: the others of the group may wait for it, to share what it fetches.
  weights_.Load(key, fetch, withdraw);
}

void Worker::Denoise(const Lines& lines, const Work& work) {
  const std::vector<Request>& requests = work.requests;
  const Request& first = requests.front();
  const WeightKey key = RequestWeights(first, config_.train.ema_decay > 0);
  FetchMissingWeights(lines.own, key);
  const TextList list = first.kind == RequestKind::kEvaluate ? TextList::kEval : TextList::kTrain;
  FetchMissingPrompts(lines.own, list, requests);
  Push push{rank_, {}, {}};
  {
    const Stopwatch stopwatch(busy_seconds_, UseOf(first.kind));
    const ConditionedPrompts& prompts = list == TextList::kEval ? eval_ : train_;
    Border border(*this, lines, requests, work.states.empty() ? 0 : static_cast<int>(work.states[0].steps));
    std::vector<Denoised> denoised =
        sampler_.Denoise(weights_.Of(key), requests, prompts, group_, work.states, at_border_ ? &border : nullptr);
    border.Post();
    sample_steps_ += requests.size();  // the last step has no border
    push.times = sampler_.times();
    const ImageShape shape = sampler_.image_shape();
    for (std::size_t i = 0; leads() && i < requests.size(); ++i) {
      Sample sample{.request = requests[i], .rank = push.rank};
      const double decoding = Now();
      Image image = During(
          "decode", [&] { return resources_.model.decoder->Decode(denoised[i].latents, shape.height, shape.width); });
      const double scoring = Now();
      RewardScore score =
          During("reward", [&] { return resources_.reward->Score(prompts.prompts[requests[i].prompt_index], image); });
      push.times.decode_seconds += scoring - decoding;
      push.times.reward_seconds += Now() - scoring;
      sample.reward = score.total;
      sample.terms = std::move(score.terms);
      sample.latents = std::move(denoised[i].trajectory);
      sample.log_probs = std::move(denoised[i].log_probs);
      sample.steps = std::move(denoised[i].steps);
      if (requests[i].keep_image) sample.image = std::move(image);
      DamagePoint("sample.reward", std::as_writable_bytes(std::span(&sample.reward, 1)));
      DamagePoint("sample.latents", std::as_writable_bytes(std::span(sample.latents)));
      push.samples.push_back(std::move(sample));
    }
  }
  if (leads()) Failpoint("push.ready");
  Call(lines.shared, push);
  Failpoint("push.done");
}

void SaveOptimizerState(const OptimizerState& state, const std::string& folder) {
  StateFile file;
  file.Put("weights", std::span<const float>(state.weights));
  file.Put("first_moment", std::span<const float>(state.first_moment));
  file.Put("second_moment", std::span<const float>(state.second_moment));
  file.Put("ema", std::span<const float>(state.ema));
  const std::int64_t updates = state.updates;
  file.Put("updates", std::span<const std::int64_t>(&updates, 1));
  file.Save(folder + "/" + kTrainerStateFile);
}

OptimizerState LoadOptimizerState(const std::string& folder) {
  const StateFile file = StateFile::Load(folder + "/" + kTrainerStateFile);
  return {file.Floats("weights"), file.Floats("first_moment"), file.Floats("second_moment"), file.Floats("ema"),
          file.Ints("updates").at(0)};
}

}  // namespace spotlight
