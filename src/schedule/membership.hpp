// Which ranks of a pool share their passes: the plan of the sequence-parallel groups, after any change.
//
// Pure and deterministic: all ranks compute it from the same list and find the same plan. Groups never span hosts.
// Parked ranks first replace those that are missing on their host, and then, as long as any are missing at all, work in
// groups of their own host; then, on each host, groups of the wanted degree whose members are all there stay as they
// are, and the other ranks are divided into the largest allowed degrees. A group that lost members gets its empty
// places filled, the others of it stay in theirs. Nobody active is left out: degree 1 is always allowed.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace spotlight {

enum class MemberState : std::uint8_t {
  kActive,   // works, in a group or newly arrived
  kParked,   // ready to work, in no group
  kLeaving,  // has its notice: gets no more work
};

// A live rank as it knows itself. Plain numbers: it travels as it is.
struct Member {
  int rank = 0;  // in the pool; unique
  int host = 0;  // equal on the ranks of one node
  MemberState state = MemberState::kActive;
  int group = -1;      // PlannedGroup::number of the plan before; -1: it was in none
  int index = -1;      // its place in that group's ranks
  int group_size = 0;  // how many that group had
};

struct PlannedGroup {
  int number = 0;  // its own in the plan; an unchanged or refilled group keeps it
  int host = 0;
  std::vector<int> ranks;  // in their order of shares; the first one leads
  bool unchanged = false;  // the same ranks in the same order as before: it need not stop
  friend bool operator==(const PlannedGroup&, const PlannedGroup&) = default;
};

struct GroupPlan {
  std::vector<PlannedGroup> groups;  // by number
  std::vector<int> parked;           // ranks that stay in reserve, ascending
};

struct GroupRules {
  int degree = 1;                      // wanted, >= 1
  int heads = 1;                       // degrees are divisors of it
  std::map<int, int> active_per_host;  // by host, ranks that are to work; empty: all
};

// SPOTLIGHT_REQUIRE: a rank twice; two in one place of a group; a previous group on two hosts; rules < 1.
GroupPlan PlanGroups(std::vector<Member> members, const GroupRules& rules);

// Sizes of the groups that `ranks` of one host are divided into: as many as possible of the largest divisor of `heads`
// that is at most `degree`, and the rest likewise. Descending; their sum is `ranks`.
std::vector<int> GroupSizes(int ranks, int degree, int heads);

struct PhaseWork {
  std::vector<int> ranks_of_host;    // live ranks of each host
  int requests = 0;                  // left of the phase
  int batch = 1;                     // requests that a group denoises together
  std::map<int, double> efficiency;  // measured: speed of a group of a degree / (degree * speed of one rank)
};

// The degree (a divisor of `heads` that was measured, or 1) with which the remaining requests are done first, when
// groups take batches as they become free; of equal ones the smallest.
int BestDegree(const PhaseWork& work, int heads);

}  // namespace spotlight
