// run.h5: what a run did, self-describing, for h5dump, h5py and xarray without our code.
//
//   /                    attributes: provenance, input, ...
//   /history/step        int64 dimension scale; /history/<name> float64, attributes units and long_name
//   /rollouts/row        int64 dimension scale; /rollouts/<column>, one row a trained-on image
//   /rewards/<term>      float64, aligned with /rollouts
//   /explored/row        likewise, one row a seed that exploration scored
//   /decisions/row       likewise, one row an arm that exploration could have taken
//   /prompts/{text,tag,id}
//   /samples/step_000120 uint8 [n, h, w, 3] (HDF5 image attributes); /samples/step_000120_captions text [n]
//
// Each call works on a copy and renames it over run.h5: a kill at any instant leaves the file of before or after the
// call, columns of a group are never of unequal length, and a reader never sees (or blocks) an unfinished write. The
// copy costs one sequential write of the file and a sync: 3 ms and 6 ms for a file of 3 MB with 50 metrics. All
// failures are FileErrors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/image.hpp"
#include "base/prompt.hpp"

namespace spotlight {

class H5File;

// One dataset of /history.
struct Column {
  std::string name;   // flat: "reward_mean"
  std::string units;  // "1", "s", "USD", ...
  std::string long_name;
};

struct RolloutRow {
  std::int64_t step = 0;
  std::uint64_t prompt_id = 0;
  std::int64_t prompt_index = 0;
  std::int64_t group = 0;
  std::uint64_t seed = 0;
  std::int64_t rank = 0;
  std::uint64_t weight_version = 0;
  double reward = 0;
  double advantage = 0;
  bool trained = false;
  std::vector<double> terms;  // in the order of reward_terms; NaN: not scored
};

// A seed that was scored during `step` for the iteration after it.
struct ExploredRow {
  std::int64_t step = 0;
  std::uint64_t prompt_id = 0;
  std::int64_t prompt_index = 0;
  std::uint64_t seed = 0;
  std::int64_t real_steps = 0;  // as in Request
  std::int64_t rank = 0;
  std::uint64_t weight_version = 0;
  double reward = 0;
  bool kept = false;     // rolled out in the next iteration
  bool control = false;  // kept because it was drawn, not for its reward
};

// What the planner thought of one arm when it decided, during `step`, what to explore for the iteration after it.
struct DecisionRow {
  std::int64_t step = 0;
  std::int64_t seeds = 0;  // of each prompt
  std::int64_t real_steps = 0;
  double cost_s = 0;    // expected; NaN: not known
  double budget_s = 0;  // the time there was; NaN: not known
  bool feasible = false;
  double score = 0;  // what the planner chose by; NaN: does not compete; infinite: never tried, or lately in vain
  bool chosen = false;
};

// One iteration's rows of all tables.
struct IterationRows {
  std::vector<RolloutRow> rollouts;
  std::vector<ExploredRow> explored;
  std::vector<DecisionRow> decisions;
};

class RunFile {
 public:
  explicit RunFile(const std::string& path);  // touches nothing

  // Starts a new file; one that exists is replaced.
  void Create(const std::map<std::string, std::string>& root_attributes, const std::vector<Column>& history_columns,
              const std::vector<std::string>& reward_terms);

  // Adds or replaces root attributes (wall time at the end, restart count).
  void SetAttributes(const std::map<std::string, std::string>& attributes);
  void WritePrompts(const std::vector<Prompt>& prompts);

  // Values by column name; columns that are absent become NaN. An unknown name is our bug.
  void AppendHistory(std::int64_t step, const std::map<std::string, double>& values);
  // A history row and its tables' rows, in one rewrite of the file.
  void AppendIteration(std::int64_t step, const std::map<std::string, double>& values, const IterationRows& rows);
  // Images of one size; replaces those of the same step.
  void AppendImages(std::int64_t step, const std::vector<Image>& images, const std::vector<std::string>& captions);

  // FileError: there is no file, or it is not of HDF5.
  bool Holds(const std::string& object) const;
  // Every row of /explored, in the order they were written.
  std::vector<ExploredRow> ReadExplored() const;
  std::vector<std::string> AttributeNames() const;  // of the root
  std::string ReadAttribute(const std::string& name) const;
  std::int64_t Steps() const;  // rows of /history

  // Drops all rows and samples with a step greater than `step` (on resume).
  void TruncateAfter(std::int64_t step);

 private:
  void Update(const std::function<void(H5File&)>& change);
  void WriteHistory(H5File& file, std::int64_t step, const std::map<std::string, double>& values) const;

  std::string path_;
};

}  // namespace spotlight
