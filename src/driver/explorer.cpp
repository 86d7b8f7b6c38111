#include "driver/explorer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "driver/dispatch.hpp"
#include "driver/signals.hpp"
#include "kernels/fingerprint.hpp"
#include "kernels/stream.hpp"

namespace spotlight {
namespace {

// The group has other members now: the batch in work is given back.
struct BatchGivenBack {};

Member MemberOf(const PoolMember& pool) {
  return {.rank = pool.rank,
          .host = pool.host,
          .state = static_cast<MemberState>(pool.word[0]),
          .group = pool.word[1],
          .index = pool.word[2],
          .group_size = pool.word[3]};
}

// What every rank would meet, and its user can mend.
bool IsUsers(const std::exception& error) {
  return dynamic_cast<const UserError*>(&error) != nullptr || dynamic_cast<const FileError*>(&error) != nullptr ||
         dynamic_cast<const RunFailed*>(&error) != nullptr;
}

std::chrono::milliseconds Milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds));
}

// Longer than a rank that is well may be away from its group. A batch's images are judged one after the other, each for
// as long as a command may take.
double LateSeconds(const Config& config) {
  const double judging =
      config.reward.command.empty() ? 0 : (config.sampler.batch + 1.0) * config.reward.command_timeout;
  return std::max({12 * config.ranks.detection_time, 60.0, judging});
}

// By host, how many ranks work.
std::map<int, int> ActivePerHost(const std::vector<Member>& members) {
  std::map<int, int> active;
  for (const Member& member : members) active[member.host] += member.state == MemberState::kActive ? 1 : 0;
  return active;
}

}  // namespace

Explorer::Explorer(const Config& config, const Resources& resources, World& world, std::uint32_t first_rank,
                   bool joined, std::uint64_t run_id, NodeMemory& node, Client& coordinator)
    : config_(config),
      world_(world),
      first_rank_(first_rank),
      joined_(joined),
      run_id_(run_id),
      coordinator_(coordinator),
      pool_(world, Milliseconds(config.ranks.detection_time), Milliseconds(LateSeconds(config))),
      shared_(pool_.group(), coordinator),
      heads_(static_cast<int>(resources.model.layout->config().num_attention_heads)),
      own_{.rank = world.rank()},
      view_{.degree = config.ranks.explorer_sp},
      members_{rank()},
      worker_(config, resources, world, rank(), run_id, &node, {}, &pool_.group(),
              [this](bool drop, const auto& commit) {
                const SpotPool::Wishes wishes = pool_.AnyWants({HasNotice(), drop}, true);
                if (wishes.regroup) {
                  if (!wishes.drop) commit();
                  if (Regroup(false)) throw BatchGivenBack{};
                }
                return wishes.drop;
              }) {
  if (!joined && world.rank() >= world.size() - config.ranks.parked) own_.state = MemberState::kParked;
  Failpoint("explorer.begin");
  // The self-test: who may err does not count as there.
  if (!worker_.Intact()) throw FileError("the weights that this node's ranks share are damaged; this rank leaves");
  Call(Hello{rank(), Role::kExplorer, world.host(), static_cast<std::uint32_t>(getpid()),
             own_.state == MemberState::kParked, ArithmeticFingerprint(), resources.contents});
}

bool Explorer::HasNotice() const {
  const std::string signal = StopSignal();
  return joined_ ? !signal.empty() : signal == "SIGTERM";
}

void Explorer::Call(const Message& message) {
  const Message reply = Decode(coordinator_.Call(Encode(message, run_id_)), run_id_);
  if (const auto* failed = std::get_if<Failed>(&reply)) throw RunFailed(failed->text, failed->exit_code);
}

int Explorer::Run() {
  bool running = true, batch_broken = false, regroup = true;
  while (running && own_.state != MemberState::kLeaving) {
    try {
      if (regroup) Regroup(batch_broken);
      regroup = batch_broken = false;
      if (own_.state == MemberState::kLeaving) break;
      running = own_.state == MemberState::kParked ? WaitParked() : TakeTurn();
    } catch (const BatchGivenBack&) {  // by way of a regroup
    } catch (const CoordinatorLost&) {
      throw;
    } catch (const PeerLost& lost) {
      LogLine(lost.what());
      regroup = batch_broken = true;
    } catch (const WeightsGone& gone) {  // so what they were wanted for is stale; the others of the group may not know
      LogLine(gone.what());
      regroup = batch_broken = true;
    } catch (const std::exception& error) {
      if (IsUsers(error)) return worker_.Report({shared_, coordinator_}, error);
      // Our bug, or no memory: the end of this rank only. What breaks every rank breaks the trainers, too, and ends the
      // run.
      LogWarning(error.what());
      fmt::print(stderr, "spotlight: {}: {}\n", ProcessName(), error.what());
      return kExitInternal;
    }
  }
  return kExitFinished;
}

bool Explorer::TakeTurn() {
  if (pool_.AnyWants({.regroup = HasNotice() || OtherDegreeWanted()}, false).regroup) {
    Regroup(false);
    return true;
  }
  return worker_.Turn({shared_, coordinator_}, members_);
}

// Only where it makes other groups.
bool Explorer::OtherDegreeWanted() {
  const int wanted = worker_.wanted_degree();
  if (!speaks_ || wanted == 0 || wanted == view_.degree) return false;
  const auto sizes = [](const GroupPlan& plan) {
    std::vector<std::size_t> all;
    for (const PlannedGroup& group : plan.groups) all.push_back(group.ranks.size());
    return all;
  };
  std::vector<Member> members = view_.living;
  for (Member& member : members) member.group = member.index = -1;
  if (sizes(PlanGroups(members, {wanted, heads_, active_per_host_})) != sizes(view_.plan)) return true;
  view_.degree = wanted;
  return false;
}

// Looks for the bell and for losses often, for a call now and then.
bool Explorer::WaitParked() {
  const bool lost = pool_.HasLost();  // before the question: who has left because the run ends is no loss
  const Message reply = Decode(
      coordinator_.Call(Encode(Pull{.rank = rank(), .role = Role::kExplorer, .busy_seconds = {}}, run_id_)), run_id_);
  if (std::holds_alternative<Finish>(reply)) return false;
  const bool called = std::holds_alternative<Activate>(reply);
  if (called) own_.state = MemberState::kActive;
  bool call = called || lost;
  const auto* wait = std::get_if<Wait>(&reply);
  for (std::uint32_t waited = 0; wait != nullptr && waited < wait->milliseconds && !call && !pool_.HasLost();
       ++waited) {
    call = pool_.rung() || HasNotice();
    if (!call) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (call) Regroup(false);
  return true;
}

Explorer::PoolView Explorer::View(const std::vector<PoolMember>& pool) const {
  PoolView view;
  for (const PoolMember& member : pool) view.living.push_back(MemberOf(member));
  const auto stays = std::find_if(pool.begin(), pool.end(), [](const PoolMember& m) { return m.stays != 0; });
  const PoolMember& speaker = stays == pool.end() ? pool.front() : *stays;
  view.speaker = speaker.rank;
  view.degree = speaker.word[4];
  const std::map<int, int> active = active_per_host_.empty() ? ActivePerHost(view.living) : active_per_host_;
  view.plan = PlanGroups(view.living, {view.degree, heads_, active});
  return view;
}

// True: this rank's group is another one than before.
bool Explorer::Regroup(bool batch_broken) {
  const Phase phase("regroup");
  const auto start = std::chrono::steady_clock::now();
  if (HasNotice()) own_.state = MemberState::kLeaving;
  const bool led = pool_.group().index() == 0 && own_.group >= 0;
  const int wish = worker_.wanted_degree() > 0 ? worker_.wanted_degree() : view_.degree;
  const Regrouped result =
      pool_.Regroup(own_.state != MemberState::kLeaving, batch_broken,
                    {static_cast<std::int32_t>(own_.state), own_.group, own_.index, own_.group_size, wish},
                    [&](const std::vector<PoolMember>& pool) {
                      view_ = View(pool);
                      std::vector<std::vector<int>> groups;
                      for (const PlannedGroup& group : view_.plan.groups) groups.push_back(group.ranks);
                      return groups;
                    });
  // Of the first regroup, which all members end with the same list; not of its tries, which not all get as far in.
  if (active_per_host_.empty()) active_per_host_ = ActivePerHost(view_.living);
  speaks_ = view_.speaker == world_.rank();
  const std::string names = TakePlace(view_.plan);
  if (led && result.changed) Call(GiveBack{rank(), false});
  if (own_.state == MemberState::kLeaving) {
    Call(GiveBack{rank(), true});
    LogLine("left in order, as its notice asked");
  } else if (speaks_) {
    Call(RegroupReport{.rank = rank(),
                       .members = static_cast<std::uint32_t>(result.members),
                       .lost = static_cast<std::uint32_t>(std::max(0, result.lost)),
                       .tries = static_cast<std::uint32_t>(result.tries),
                       .shrink_seconds = result.shrink_seconds,
                       .build_seconds = result.build_seconds,
                       .groups = names});
  }
  worker_.AddBusy(Use::kRegroup, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return result.changed;
}

// This rank's place in the plan. Returns all groups for people: "2 3 | 4", in numbers of the run.
std::string Explorer::TakePlace(const GroupPlan& plan) {
  std::vector<std::string> names;
  bool placed = false;
  for (const PlannedGroup& group : plan.groups) {
    std::vector<std::uint32_t> numbers;
    for (const int member : group.ranks) numbers.push_back(first_rank_ + static_cast<std::uint32_t>(member));
    names.push_back(fmt::format("{}", fmt::join(numbers, " ")));
    const auto found = std::find(group.ranks.begin(), group.ranks.end(), world_.rank());
    if (found == group.ranks.end()) continue;
    placed = true;
    own_ = {.rank = world_.rank(),
            .state = MemberState::kActive,
            .group = group.number,
            .index = static_cast<int>(found - group.ranks.begin()),
            .group_size = static_cast<int>(group.ranks.size())};
    members_ = numbers;
  }
  if (!placed) own_.group = own_.index = -1;
  return fmt::format("{}", fmt::join(names, " | "));
}

}  // namespace spotlight
