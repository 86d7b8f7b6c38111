#include "driver/dispatch.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/log.hpp"
#include "driver/resources.hpp"

namespace spotlight {
namespace {

constexpr std::uint32_t kWaitMilliseconds = 2;     // between two pulls of a worker that has nothing to do
constexpr std::uint32_t kParkedMilliseconds = 50;  // of a parked one
constexpr double kReasonSeconds = 2;               // that a more telling report may be late
constexpr const char* kSeeLogs = "; its log in logs/ may say why. The last checkpoint is good: go on with -r latest";

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Connections of ranks are called by their number; others, as of one that asks to join, are nobody's loss.
std::optional<std::uint32_t> RankOf(const std::string& name) {
  std::uint32_t rank = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), rank);
  if (name.empty() || error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return rank;
}

}  // namespace

Dispatch::Dispatch(const Config& config, std::uint64_t run_id, Server& server, Parts parts)
    : config_(config),
      run_id_(run_id),
      server_(server),
      parts_(std::move(parts)),
      work_(config, parts_.store, parts_.heads, parts_.role == Role::kAll),
      start_(Now()),
      pushed_(static_cast<std::uint64_t>(parts_.weights)),
      ledger_(config.cost),
      roster_(ledger_) {
  for (const auto& [rank, leads] : parts_.trainers) trainers_[rank].leads = leads;
  if (parts_.role == Role::kAll) {  // it says no hello
    roster_.Arrive({.rank = 0, .role = Role::kAll}, start_);
    for (auto& [rank, trainer] : trainers_) trainer.arrived = true;
  }
}

void Dispatch::StartTraining(std::uint32_t iteration, std::vector<TrainSample> samples) {
  samples_ = std::move(samples);
  trained_.reset();
  trained_metrics_.clear();
  trainers_left_ = 0;
  for (auto& [rank, trainer] : trainers_) {
    if (!trainer.leads) continue;
    trainer.tasks.emplace_back(Train{iteration, samples_.size()});
    ++trainers_left_;
  }
}

void Dispatch::StartSave(const std::string& path, std::uint64_t step) {
  savers_left_ = 0;
  for (auto& [rank, trainer] : trainers_) {
    if (!trainer.leads) continue;
    trainer.tasks.emplace_back(Save{path, step});  // each has a share of the state; the first one writes
    ++savers_left_;
  }
}

void Dispatch::Cancel(RequestKind kind) {
  for (const std::uint32_t rank : work_.Working(kind)) {
    server_.Tell(std::to_string(rank), Encode(Drop{kind, work_.last_id()}, run_id_));
  }
  work_.Cancel(kind);
}

void Dispatch::Publish(const WeightKey& key, std::vector<float> values) {
  published_.remove_if([&](const Published& entry) { return entry.key == key || entry.key.version + 1 < key.version; });
  WeightPieces pieces = MapOf(key.version, key.ema, values);
  if (parts_.store != nullptr) {
    const std::vector<std::uint64_t>& sums = pieces.checksums;
    const std::uint32_t checksum = Crc32(sums.data(), sums.size() * sizeof(sums[0]));
    for (const RequestKind kind : {RequestKind::kRollout, RequestKind::kExplore, RequestKind::kEvaluate}) {
      // The average comes after what is trained, and is for evaluations only.
      if (!key.ema || kind == RequestKind::kEvaluate) parts_.store->NameWeights(kind, key.version, checksum);
    }
  }
  published_.push_front({key, std::move(values), std::move(pieces), {}});
}

Dispatch::Published* Dispatch::FindPublished(const WeightKey& key) {
  const auto found =
      std::find_if(published_.begin(), published_.end(), [&](const Published& entry) { return entry.key == key; });
  return found == published_.end() ? nullptr : &*found;
}

const std::vector<float>& Dispatch::PublishedWeights(const WeightKey& key) {
  const Published* published = FindPublished(key);
  SPOTLIGHT_REQUIRE(published != nullptr, "no weights of version " + std::to_string(key.version));
  return published->values;
}

Message Dispatch::AnswerFind(const FindWeights& find) {
  Published* published = FindPublished({find.version, find.ema});
  if (published == nullptr) return NoWeights{find.version, find.ema};
  WeightPieces pieces = published->pieces;
  pieces.holders = published->holders.After(find.rank);
  if (!find.address.empty() && roster_.Has(find.rank)) published->holders.Add(find.rank, find.address);
  return pieces;
}

Message Dispatch::AnswerFetch(const FetchWeights& fetch) {
  const Published* published = FindPublished({fetch.version, fetch.ema});
  if (published == nullptr) return NoWeights{fetch.version, fetch.ema};  // of a worker that was away for long
  return PieceOf(fetch, published->values);
}

Message Dispatch::AnswerFetch(const FetchSamples& fetch) const {
  constexpr std::size_t kMost = std::size_t{16} << 20;
  SPOTLIGHT_REQUIRE(fetch.first < samples_.size(), fmt::format("sample {} of {}", fetch.first, samples_.size()));
  Samples samples;
  std::size_t bytes = 0;
  for (std::size_t i = fetch.first; i < samples_.size(); ++i) {
    bytes += samples_[i].sample.latents.size() * sizeof(float);
    if (bytes > kMost && !samples.samples.empty()) break;
    samples.samples.push_back(samples_[i]);
  }
  return samples;
}

bool Dispatch::ServeOne() {
  return server_.ServeOne([this](const Bytes& bytes) { return Answer(bytes); }, std::chrono::milliseconds(100));
}

void Dispatch::ServeUntil(const std::function<bool()>& condition, const std::function<void()>& idle) {
  while (!condition()) {
    ServeOne();
    CheckWorkers();
    work_.Expire(Now());
    if (parts_.tick) parts_.tick();
    idle();
  }
}

void Dispatch::CheckWorkers() {
  // Who lost its peer tells so; the peer's own report, or its end, says why and may arrive a little later.
  if (failure_ && (failure_->exit_code() != kExitStopped || Now() - failed_at_ > kReasonSeconds)) throw *failure_;
  for (const std::string& name : server_.TakeLost()) {
    if (const std::optional<std::uint32_t> rank = RankOf(name)) Lose(*rank);
  }
  if (Now() - start_ < kConnectSeconds) return;
  for (const auto& [rank, trainer] : trainers_) {
    if (!trainer.arrived) throw Lost(rank, "it has not called since the start");
  }
}

// A rank whose connection has ended: killed, stopped or cut off; or it has left, and said so before.
void Dispatch::Lose(std::uint32_t rank) {
  if (const auto trainer = trainers_.find(rank); trainer != trainers_.end()) {
    if (std::exchange(trainer->second.gone, true)) return;
    throw Lost(rank, "its connection has ended: it was killed, or it was stopped or cut off for " +
                         std::to_string(kSilenceLimit.count() / 1000) + " s");
  }
  for (Published& entry : published_) entry.holders.Remove(rank);
  if (!roster_.Has(rank)) return;
  const std::size_t given_back = work_.Lose(rank);
  // Each sample of its batch has lost what it did since the last commit: a step, by and large.
  ledger_.AddSteps(0, static_cast<double>(given_back));
  LogLine(fmt::format("spot rank {} is lost; {} requests of it go to others", rank, given_back));
  roster_.Depart(rank, Use::kLost, Now());
}

PeerLost Dispatch::Lost(std::uint32_t rank, const std::string& how) const {
  return PeerLost("rank " + std::to_string(rank) + " (trainer) is lost: " + how + kSeeLogs);
}

void Dispatch::Finish() {
  finishing_ = true;
  const double deadline = Now() + kLongestTurn;
  const auto all_gone = [&] {
    const auto heard = [](const auto& entry) { return entry.second.gone || !entry.second.leads; };
    const auto explores = [](const auto& entry) { return entry.second.role == Role::kExplorer; };
    return std::none_of(roster_.ranks().begin(), roster_.ranks().end(), explores) &&
           std::all_of(trainers_.begin(), trainers_.end(), heard);
  };
  while (!all_gone() && parts_.role != Role::kAll && Now() < deadline) {
    ServeOne();
    for (const std::string& name : server_.TakeLost()) {
      const std::optional<std::uint32_t> rank = RankOf(name);
      if (!rank) continue;
      if (const auto trainer = trainers_.find(*rank); trainer != trainers_.end()) trainer->second.gone = true;
      roster_.Depart(*rank, Use::kIdle, Now());
    }
  }
}

Bytes Dispatch::Answer(const Bytes& bytes) {
  Message reply = Ack{};
  Message message;
  try {
    message = Decode(bytes, run_id_);
  } catch (const MessageError& error) {  // of another build or run; whoever sent it must not hurt this run
    return Encode(Failed{error.what(), kExitUsage}, run_id_);
  }
  if (const auto* pull = std::get_if<Pull>(&message)) {
    reply = AnswerPull(*pull);
  } else if (auto* push = std::get_if<Push>(&message)) {
    if (!trainers_.contains(push->rank) && push->times.requests > 0 && !push->samples.empty()) {
      times_[push->samples[0].request.kind].push_back(push->times);
    }
    ledger_.AddSteps(work_.Accept(std::move(*push), Now()), 0);
  } else if (auto* commit = std::get_if<CommitStates>(&message)) {
    work_.Accept(std::move(*commit), Now());
  } else if (const auto* fetch = std::get_if<FetchWeights>(&message)) {
    reply = AnswerFetch(*fetch);
  } else if (const auto* of = std::get_if<FetchSamples>(&message)) {
    reply = AnswerFetch(*of);
  } else if (const auto* find = std::get_if<FindWeights>(&message)) {
    reply = AnswerFind(*find);
  } else if (const auto* prompts = std::get_if<FetchPrompts>(&message)) {
    reply = parts_.embeddings(*prompts);
  } else if (auto* piece = std::get_if<PushWeights>(&message)) {
    pushed_.Add(std::move(*piece));
  } else if (auto* trained = std::get_if<Trained>(&message)) {
    AcceptTrained(std::move(*trained));
  } else if (std::holds_alternative<Saved>(message)) {
    --savers_left_;
  } else if (const auto* hello = std::get_if<Hello>(&message)) {
    reply = AnswerHello(*hello);
  } else if (const auto* join = std::get_if<Join>(&message)) {
    reply = AnswerJoin(*join);
  } else if (const auto* back = std::get_if<GiveBack>(&message)) {
    AcceptGiveBack(*back);
  } else if (const auto* regroup = std::get_if<RegroupReport>(&message)) {
    ++roster_.counts.regroups;
    LogLine(fmt::format("explorers regrouped ({}): {} lost, {} there, groups {}; {:.1f} ms", roster_.counts.regroups,
                        regroup->lost, regroup->members, regroup->groups,
                        1e3 * (regroup->shrink_seconds + regroup->build_seconds)));
  } else if (const auto* failed = std::get_if<Failed>(&message)) {
    if (const auto trainer = trainers_.find(failed->rank); trainer != trainers_.end()) trainer->second.gone = true;
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

// Why a rank cannot take part; "": it can.
std::string Dispatch::Unfit(const Hello& hello) const {
  if (hello.fingerprint != parts_.fingerprint) {
    return fmt::format(
        "rank {} on {} computes other last bits than the coordinator's machine ({:016x}, {:016x}): take a "
        "machine with the same kind of processor and the same build",
        hello.rank, hello.host, hello.fingerprint, parts_.fingerprint);
  }
  const std::vector<std::string> different = DifferentContents(parts_.contents, hello.contents);
  if (different.empty()) return "";
  return fmt::format(
      "rank {} on {} has read other files than the coordinator's machine: {}; copy the run's files there", hello.rank,
      hello.host, fmt::join(different, ", "));
}

Message Dispatch::AnswerHello(const Hello& hello) {
  if (const std::string text = Unfit(hello); !text.empty()) {
    if (trainers_.contains(hello.rank)) {
      failure_.emplace(text, kExitUsage);
    } else {
      LogWarning(text + "; it is not used");
    }
    return Failed{text, kExitUsage, hello.rank};
  }
  if (const auto trainer = trainers_.find(hello.rank); trainer != trainers_.end()) trainer->second.arrived = true;
  roster_.Arrive(hello, Now());
  return Ack{};
}

Message Dispatch::AnswerJoin(const Join& join) {
  if (!parts_.welcome) return Failed{"this run takes no spot jobs", kExitUsage};
  if (finishing_) return Failed{"this run has come to its end", kExitFinished};
  if (const double wait = roster_.CoolDown(join.host, config_.spot.cool_down, Now()); wait > 0) {
    return Wait{static_cast<std::uint32_t>(std::ceil(1000 * wait))};
  }
  Welcome welcome = parts_.welcome();
  welcome.first_rank = roster_.Reserve(join.ranks);
  LogLine(fmt::format("a spot job of {} rank(s) on {} joins as rank {}", join.ranks, join.host, welcome.first_rank));
  return welcome;
}

Message Dispatch::AnswerPull(const Pull& pull) {
  if (!roster_.Has(pull.rank)) {  // taken for lost, and now it is back
    return spotlight::Finish{};
  }
  RosterRank& rank = roster_.At(pull.rank);
  const bool parked = pull.capacity == 0;
  if (!parked) {
    roster_.Report(pull, Now());
    ledger_.AddSteps(0, static_cast<double>(pull.sample_steps));
    work_.Release(pull.rank);
  }
  if (finishing_) {
    if (const auto trainer = trainers_.find(pull.rank); trainer != trainers_.end()) trainer->second.gone = true;
    for (const std::uint32_t member : pull.members) roster_.Depart(member, Use::kIdle, Now());
    roster_.Depart(pull.rank, Use::kIdle, Now());
    return spotlight::Finish{};
  }
  if (parked) {
    if (!rank.called) return Wait{kParkedMilliseconds};
    return Activate{};
  }
  const auto takes = [this](RequestKind kind, int other) { return Takes(kind, static_cast<std::uint32_t>(other)); };
  if (!work_.AllDone()) {
    if (std::optional<Work> work = work_.Lease(pull, roster_.Leaders(), takes, Now())) return *std::move(work);
  }
  if (const auto trainer = trainers_.find(pull.rank); trainer != trainers_.end() && !trainer->second.tasks.empty()) {
    Message task = std::move(trainer->second.tasks.front());
    trainer->second.tasks.pop_front();
    return task;
  }
  return Wait{kWaitMilliseconds, static_cast<std::uint32_t>(work_.degree())};
}

// With no spot rank the trainers explore what must be explored before they train; and what is left of it, after that.
// Nor do they wait for spot ranks of which all hang.
bool Dispatch::Takes(RequestKind kind, std::uint32_t rank) const {
  const bool spot = !trainers_.contains(rank);
  if (kind != RequestKind::kExplore) return !spot || config_.ranks.spot_rollouts;
  return spot || (config_.explore.Awaited() && (parts_.role == Role::kAll || roster_.explorers(work_.silent()) == 0));
}

void Dispatch::AcceptGiveBack(const GiveBack& message) {
  work_.Release(message.rank);
  if (!message.leaves || !roster_.Has(message.rank)) return;
  LogLine(fmt::format("spot rank {} has left in order", message.rank));
  roster_.Depart(message.rank, Use::kDraining, Now());
}

void Dispatch::AcceptTrained(Trained trained) {
  if (trainers_left_ == 0) return;
  // All report the same of what was learnt, and one that it has pushed the weights.
  trained_metrics_.merge(trained.metrics);
  if (--trainers_left_ > 0) return;
  for (const bool ema : {false, true}) {
    std::optional<std::vector<float>> values = pushed_.Take(trained.next_version, ema);
    SPOTLIGHT_REQUIRE(values || (ema && config_.train.ema_decay == 0), "training ended without its weights");
    if (values) (ema ? trained.ema_weights : trained.weights) = std::move(*values);
  }
  samples_ = {};
  trained.metrics = std::move(trained_metrics_);
  trained_ = std::move(trained);
}

}  // namespace spotlight
