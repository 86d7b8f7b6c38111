// The columns of /history: one value an iteration. docs/files.md describes them for users.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/run_file.hpp"
#include "plan/ledger.hpp"
#include "reward/evaluation.hpp"

namespace spotlight {

// The fixed columns, and one eval_strict_<tag> for each tag of the held-out prompts.
std::vector<Column> HistoryColumns(const std::vector<Prompt>& eval);

void AddEvaluation(const Evaluation& evaluation, std::map<std::string, double>& values);
// Totals of the run so far.
void AddCost(const CostLedger& ledger, std::map<std::string, double>& values);

}  // namespace spotlight
