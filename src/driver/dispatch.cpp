#include "driver/dispatch.hpp"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr std::uint32_t kWaitMilliseconds = 2;  // between two pulls of a worker that has nothing to do
constexpr std::size_t kSmallestLease = 8;       // fewer samples a batch waste the matrix units
constexpr double kReasonSeconds = 2;            // that a more telling report may be late
constexpr const char* kSeeLogs = "; its log in logs/ may say why. The last checkpoint is good: go on with -r latest";

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool Trains(Role role) { return role == Role::kTrainer || role == Role::kAll; }

}  // namespace

Dispatch::Dispatch(const Config& config, const std::map<std::uint32_t, Role>& roles, std::uint64_t run_id,
                   Server& server, Embeddings embeddings, Index weights)
    : config_(config),
      run_id_(run_id),
      server_(server),
      start_(Now()),
      pushed_(static_cast<std::uint64_t>(weights)),
      embeddings_(std::move(embeddings)),
      ledger_(config.cost) {
  for (const auto& [rank, role] : roles) {
    workers_[rank].role = role;
    workers_[rank].called = role == Role::kAll;
    explorers_ += role == Role::kExplorer ? 1 : 0;
  }
}

int Dispatch::RanksOf(Role role) const {
  if (role == Role::kExplorer) return config_.ranks.explorer_sp;
  return role == Role::kTrainer ? config_.ranks.trainer_sp : 1;
}

void Dispatch::BeginIteration() {
  queue_ = RequestQueue();
  samples_.clear();
}

void Dispatch::Add(std::vector<Request> requests) {
  for (Request& request : requests) request.id = next_id_++;
  queue_.Add(requests);
}

std::vector<Sample> Dispatch::Take(RequestKind kind) {
  std::vector<Sample> taken;
  for (auto& [id, sample] : samples_[kind]) taken.push_back(std::move(sample));
  samples_[kind].clear();
  return taken;
}

void Dispatch::StartTraining(Train train) {
  trained_.reset();
  trainers_left_ = 0;
  for (auto& [rank, worker] : workers_) {
    if (!Trains(worker.role)) continue;
    worker.tasks.emplace_back(train);
    ++trainers_left_;
  }
}

void Dispatch::StartSave(const std::string& path, std::uint64_t step) {
  savers_left_ = 0;
  for (auto& [rank, worker] : workers_) {
    if (!Trains(worker.role)) continue;
    worker.tasks.emplace_back(Save{path, step});  // each has a share of the state; the first one writes
    ++savers_left_;
  }
}

void Dispatch::Publish(const WeightKey& key, std::vector<float> values) {
  published_.remove_if([&](const Published& entry) { return entry.key == key || entry.key.version + 1 < key.version; });
  const std::uint64_t checksum = Checksum(values);
  published_.push_front({key, std::move(values), checksum});
}

const Dispatch::Published& Dispatch::FindPublished(const WeightKey& key) const {
  for (const Published& entry : published_) {
    if (entry.key == key) return entry;
  }
  FailRequire("published", __FILE__, __LINE__, "no weights of version " + std::to_string(key.version));
}

const std::vector<float>& Dispatch::PublishedWeights(const WeightKey& key) const { return FindPublished(key).values; }

bool Dispatch::ServeOne() {
  return server_.ServeOne([this](const Bytes& bytes) { return Answer(bytes); }, std::chrono::milliseconds(100));
}

void Dispatch::ServeUntil(const std::function<bool()>& condition, const std::function<void()>& idle) {
  while (!condition()) {
    ServeOne();
    CheckWorkers();
    idle();
  }
}

void Dispatch::CheckWorkers() {
  // Who lost its peer tells so; the peer's own report, or its end, says why and may arrive a little later.
  if (failure_ && (failure_->exit_code() != kExitStopped || Now() - failed_at_ > kReasonSeconds)) throw *failure_;
  for (const std::string& name : server_.TakeLost()) {
    if (name.empty()) throw PeerLost("a worker was lost before its first call" + std::string(kSeeLogs));
    const std::uint32_t rank = static_cast<std::uint32_t>(std::stoul(name));
    const auto worker = workers_.find(rank);
    if (worker != workers_.end() && std::exchange(worker->second.gone, true)) continue;
    throw Lost(rank, worker != workers_.end() ? worker->second.role : followers_.at(rank),
               "its connection has ended: it was killed, or it was stopped or cut off for " +
                   std::to_string(kSilenceLimit.count() / 1000) + " s");
  }
  if (Now() - start_ < kConnectSeconds) return;
  for (const auto& [rank, worker] : workers_) {
    if (!worker.called) throw Lost(rank, worker.role, "it has not called since the start");
  }
}

PeerLost Dispatch::Lost(std::uint32_t rank, Role role, const std::string& how) const {
  return PeerLost("rank " + std::to_string(rank) + " (" + std::string(RoleName(role)) + ") is lost: " + how + kSeeLogs);
}

void Dispatch::Finish() {
  finishing_ = true;
  const double deadline = Now() + kLongestTurn;
  const auto all_gone = [&] {
    return std::all_of(workers_.begin(), workers_.end(),
                       [](const auto& entry) { return entry.second.gone || entry.second.role == Role::kAll; });
  };
  while (!all_gone() && Now() < deadline) {
    ServeOne();
    for (const std::string& name : server_.TakeLost()) {
      if (name.empty()) continue;
      const auto worker = workers_.find(static_cast<std::uint32_t>(std::stoul(name)));
      if (worker != workers_.end()) worker->second.gone = true;
    }
  }
}

Bytes Dispatch::Answer(const Bytes& bytes) {
  Message reply = Ack{};
  Message message = Decode(bytes, run_id_);
  if (const auto* pull = std::get_if<Pull>(&message)) {
    reply = AnswerPull(*pull);
  } else if (const auto* push = std::get_if<Push>(&message)) {
    AcceptPush(*push);
  } else if (const auto* fetch = std::get_if<FetchWeights>(&message)) {
    const Published& published = FindPublished({fetch->version, fetch->ema});
    reply = PieceOf(*fetch, published.values, published.checksum);
  } else if (const auto* prompts = std::get_if<FetchPrompts>(&message)) {
    reply = embeddings_(*prompts);
  } else if (auto* piece = std::get_if<PushWeights>(&message)) {
    pushed_.Add(std::move(*piece));
  } else if (auto* trained = std::get_if<Trained>(&message)) {
    AcceptTrained(std::move(*trained));
  } else if (std::holds_alternative<Saved>(message)) {
    --savers_left_;
  } else if (const auto* failed = std::get_if<Failed>(&message)) {
    workers_.at(failed->rank).gone = true;
    if (!failure_ || failure_->exit_code() == kExitStopped) {
      if (!failure_) failed_at_ = Now();
      failure_.emplace(failed->text, failed->exit_code);
    }
    reply = *failed;  // a leader passes it on to those that share its passes
  } else {
    reply = Failed{"a worker sent what only the coordinator may send", kExitInternal};
  }
  return Encode(reply, run_id_);
}

Message Dispatch::AnswerPull(const Pull& pull) {
  if (followers_.contains(pull.rank)) return Wait{0};  // its greeting
  const auto found = workers_.find(pull.rank);
  SPOTLIGHT_REQUIRE(found != workers_.end(), "pull from an unknown rank " + std::to_string(pull.rank));
  WorkerState& worker = found->second;
  const double now = Now();
  const Pool pool = worker.role == Role::kExplorer ? Pool::kSpot : Pool::kReserved;
  const double busy = std::accumulate(pull.busy_seconds.begin(), pull.busy_seconds.end(), 0.0);
  const int ranks = RanksOf(worker.role);
  for (std::size_t use = 0; use < pull.busy_seconds.size(); ++use) {
    ledger_.Add(pool, static_cast<Use>(use), ranks * pull.busy_seconds[use]);
  }
  if (worker.last_pull > 0) ledger_.Add(pool, Use::kIdle, ranks * std::max(0.0, now - worker.last_pull - busy));
  worker.last_pull = now;
  worker.called = true;
  if (finishing_) {
    worker.gone = true;
    return spotlight::Finish{};
  }
  std::vector<RequestKind> kinds = {RequestKind::kEvaluate, RequestKind::kRollout};
  if (Explores(worker)) kinds.push_back(RequestKind::kExplore);
  for (const RequestKind kind : kinds) {
    const std::size_t size = std::min<std::size_t>(LeaseSize(worker, kind), pull.capacity);
    std::vector<Request> requests =
        size == 0 ? std::vector<Request>{}
                  : queue_.Lease(static_cast<int>(pull.rank), static_cast<int>(size), {kind}, now);
    if (!requests.empty()) return Work{std::move(requests)};
  }
  if (!worker.tasks.empty()) {
    Message task = std::move(worker.tasks.front());
    worker.tasks.pop_front();
    return task;
  }
  return Wait{kWaitMilliseconds};
}

bool Dispatch::Explores(const WorkerState& worker) const {
  return worker.role != Role::kTrainer || explorers_ == 0;  // with no spot rank the trainers explore before they train
}

// Half of a fair share, so that a fast worker comes back for more and the last batch is a small one.
std::size_t Dispatch::LeaseSize(const WorkerState& worker, RequestKind kind) const {
  const std::size_t queued = queue_.Count(RequestState::kQueued, kind);
  std::size_t sharers = 0;
  for (const auto& [rank, other] : workers_) {
    sharers += kind != RequestKind::kExplore || Explores(other) ? 1 : 0;
  }
  if (worker.role == Role::kAll || sharers <= 1) return queued;
  return std::max(kSmallestLease, (queued + 2 * sharers - 1) / (2 * sharers));
}

void Dispatch::AcceptPush(const Push& push) {
  for (const Sample& sample : push.samples) {
    if (!queue_.Complete(sample.request.id, static_cast<int>(push.rank))) continue;  // cut or fenced: not counted
    samples_[sample.request.kind][sample.request.id] = sample;
  }
}

void Dispatch::AcceptTrained(Trained trained) {
  // All report the same metrics, one has pushed the weights.
  if (trainers_left_ == 0) return;
  if (--trainers_left_ > 0) return;
  for (const bool ema : {false, true}) {
    std::optional<std::vector<float>> values = pushed_.Take(trained.next_version, ema);
    SPOTLIGHT_REQUIRE(values || (ema && config_.train.ema_decay == 0), "training ended without its weights");
    if (values) (ema ? trained.ema_weights : trained.weights) = std::move(*values);
  }
  trained_ = std::move(trained);
}

}  // namespace spotlight
