// GenEval's rule (Ghosh et al. 2023, github.com/djghosh13/geneval) on the detections of one image, whatever made them.
//
// An include clause asks for `count` objects of a class, perhaps of a colour, perhaps in a relation to the objects of
// an earlier clause. When several clauses name one class, the objects that they want are added up.
// An object that matches a clause has its class and, if asked for, its colour.
//
//   strict  1 if every condition holds, else 0. Conditions: enough objects of the class (exactly as many under the tag
//           "counting"); `count` of them of the colour; some matching pair in the relation; fewer objects of an exclude
//           clause than its count. Extra objects outside counting are allowed, as in the benchmark.
//   soft    mean of the conditions, each in [0, 1]: min(found, n) / n, under counting max(0, 1 - |found - n| / n);
//           a relation holds or not. A broken exclude clause adds a 0; a kept one adds nothing, else an empty image
//           would earn something.
//   dense   soft with each condition weighted by the detector's confidence (of the class, of the colour): the same
//           ranking with fewer ties.
//   exact   graded reward with exact counts in every task, after Flow-GRPO's reward server: per include clause
//           max(0, 1 - |found - n| / n); for a colour max(0, 1 - |matching - n| / n), for a relation 1 if it holds for
//           all matching pairs, and both 0 if the count is wrong (a relation also if its target clause failed); the
//           mean over all. Thus extra objects cost. Unlike the server's: terms are not negative, a wrong relation
//           does not earn 1 besides its 0, and a clause always has the same number of terms. A broken exclude clause
//           adds a 0 if no include clause names its class (the count covers the others).
#pragma once

#include <vector>

#include "base/prompt.hpp"
#include "reward/detection.hpp"

namespace spotlight {

struct GenevalScores {
  double strict = 0;
  double soft = 0;
  double dense = 0;
  double exact = 0;
};

// `prompt` must have an include clause, counts of at least 1, and relations to earlier clauses (InternalError if not).
GenevalScores ScoreGeneval(const Prompt& prompt, const std::vector<Detection>& detections);

}  // namespace spotlight
