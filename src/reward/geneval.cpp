#include "reward/geneval.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "base/error.hpp"

namespace spotlight {
namespace {

using Objects = std::vector<const Detection*>;

// Objects of a class and, if `color` is not empty, of that colour.
Objects Find(const std::vector<Detection>& detections, const std::string& object_class, const std::string& color) {
  Objects found;
  for (const Detection& detection : detections) {
    if (detection.object_class != object_class || (!color.empty() && detection.color != color)) continue;
    found.push_back(&detection);
  }
  return found;
}

class Mean {
 public:
  void Add(double value) {
    sum_ += value;
    ++count_;
  }
  double value() const { return count_ == 0 ? 0 : sum_ / count_; }

 private:
  double sum_ = 0;
  int count_ = 0;
};

double ExactShare(double found, double wanted) { return std::max(0.0, 1.0 - std::abs(found - wanted) / wanted); }
double EnoughShare(double found, double wanted) { return std::min(found, wanted) / wanted; }

// Mean of the `wanted` largest values; those that are missing count as 0.
double MeanOfLargest(std::vector<double> values, int wanted) {
  std::sort(values.begin(), values.end(), std::greater<>());
  values.resize(wanted, 0.0);
  Mean mean;
  for (const double value : values) mean.Add(value);
  return mean.value();
}

// What the image holds for one include clause.
struct Findings {
  int wanted = 0;    // objects of the class, over all clauses that name it
  Objects of_class;  // whatever their colour
  Objects matching;
  bool exactly = false;  // as many objects and as many of the colour as wanted
};

std::vector<Findings> Examine(const Prompt& prompt, const std::vector<Detection>& detections) {
  std::vector<Findings> all;
  for (const Clause& clause : prompt.include) {
    SPOTLIGHT_REQUIRE(clause.count >= 1, "an include clause wants no object: " + prompt.text);
    Findings findings;
    for (const Clause& other : prompt.include) {
      if (other.object_class == clause.object_class) findings.wanted += other.count;
    }
    findings.of_class = Find(detections, clause.object_class, "");
    findings.matching = Find(detections, clause.object_class, clause.color);
    findings.exactly = static_cast<int>(findings.of_class.size()) == findings.wanted &&
                       (clause.color.empty() || static_cast<int>(findings.matching.size()) == clause.count);
    all.push_back(std::move(findings));
  }
  return all;
}

bool RelationToSome(const std::string& relation, const Objects& objects, const Objects& targets) {
  return std::any_of(objects.begin(), objects.end(), [&](const Detection* a) {
    return std::any_of(targets.begin(), targets.end(),
                       [&](const Detection* b) { return RelationHolds(relation, a->box, b->box); });
  });
}

bool RelationToAll(const std::string& relation, const Objects& objects, const Objects& targets) {
  return std::all_of(objects.begin(), objects.end(), [&](const Detection* a) {
    return std::all_of(targets.begin(), targets.end(),
                       [&](const Detection* b) { return RelationHolds(relation, a->box, b->box); });
  });
}

}  // namespace

GenevalScores ScoreGeneval(const Prompt& prompt, const std::vector<Detection>& detections) {
  SPOTLIGHT_REQUIRE(!prompt.include.empty(), "no include clause: " + prompt.text);
  const bool counting = prompt.tag == "counting";
  const std::vector<Findings> all = Examine(prompt, detections);
  bool strict = true;
  Mean soft, dense, exact;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Clause& clause = prompt.include[i];
    const auto& [wanted, of_class, matching, exactly] = all[i];
    const int found = static_cast<int>(of_class.size());

    std::vector<double> confidences;
    for (const Detection* object : of_class) confidences.push_back(object->confidence);
    strict = strict && (counting ? found == wanted : found >= wanted);
    if (counting) {
      Mean confidence;
      for (const double value : confidences) confidence.Add(value);
      soft.Add(ExactShare(found, wanted));
      dense.Add(ExactShare(found, wanted) * confidence.value());
    } else {
      soft.Add(EnoughShare(found, wanted));
      dense.Add(MeanOfLargest(confidences, wanted));
    }
    exact.Add(ExactShare(found, wanted));

    if (!clause.color.empty()) {
      const int colored = static_cast<int>(matching.size());
      std::vector<double> shares;
      for (const Detection* object : of_class) shares.push_back(ShareOf(*object, clause.color));
      strict = strict && colored >= clause.count;
      soft.Add(EnoughShare(colored, clause.count));
      dense.Add(MeanOfLargest(shares, clause.count));
      exact.Add(found == wanted ? ExactShare(colored, clause.count) : 0.0);
    }
    if (!clause.relation.empty()) {
      SPOTLIGHT_REQUIRE(clause.relation_target >= 0 && clause.relation_target < static_cast<int>(i),
                        "a relation to no earlier clause: " + prompt.text);
      const Findings& target = all[clause.relation_target];
      const bool holds = RelationToSome(clause.relation, matching, target.matching);
      strict = strict && holds;
      soft.Add(holds ? 1.0 : 0.0);
      dense.Add(holds ? 1.0 : 0.0);
      const bool holds_exactly = exactly && target.exactly && RelationToAll(clause.relation, matching, target.matching);
      exact.Add(holds_exactly ? 1.0 : 0.0);
    }
  }
  for (const Clause& clause : prompt.exclude) {
    const int found = static_cast<int>(Find(detections, clause.object_class, clause.color).size());
    if (found < clause.count) continue;
    strict = false;
    soft.Add(0.0);
    dense.Add(0.0);
    const bool counted = std::any_of(prompt.include.begin(), prompt.include.end(),
                                     [&](const Clause& other) { return other.object_class == clause.object_class; });
    if (!counted) exact.Add(0.0);
  }
  return {strict ? 1.0 : 0.0, soft.value(), dense.value(), exact.value()};
}

}  // namespace spotlight
