// Checkpoint folders: <run>/checkpoints/step_000120/{*, DONE} and the symbolic link <run>/checkpoints/latest.
//
// Protocol: BeginCheckpoint makes a hidden folder; the caller writes its files there (io/state_file.hpp);
// CommitCheckpoint adds DONE (JSON: name, size, CRC-32 of every file), syncs everything, renames the folder and moves
// `latest`. A folder without DONE is not a checkpoint. Failures are FileErrors.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/state_file.hpp"

namespace spotlight {

// Creates <run>/checkpoints/.step_000120.partial, empty, and returns its path.
std::string BeginCheckpoint(const std::string& run_dir, int step);

// Makes the folder of BeginCheckpoint, which must hold `files`, the newest checkpoint, then removes all but the newest
// `keep` (>= 1), unfinished folders, and checkpoints of later steps.
void CommitCheckpoint(const std::string& run_dir, int step, int keep, const std::vector<std::string>& files);

// Points `latest` to the checkpoint of `step` and removes those of later steps: they belong to a course that the run
// leaves by resuming before them.
void RemoveLaterCheckpoints(const std::string& run_dir, int step);

// <run>/checkpoints/step_000120.
std::string CheckpointPath(const std::string& run_dir, int step);

// The checkpoint is complete (DONE is there). False where it cannot be looked at.
bool HasCheckpoint(const std::string& run_dir, int step);

// Steps of the complete checkpoints, ascending.
std::vector<int> ListCheckpoints(const std::string& run_dir);

// Compares every file with DONE; FileError saying which one is missing, truncated or changed.
void VerifyCheckpoint(const std::string& run_dir, int step);

// The newest checkpoint that verifies. Each newer one that does not adds its message to `problems`.
std::optional<int> NewestGoodCheckpoint(const std::string& run_dir, std::vector<std::string>& problems);

}  // namespace spotlight
