// All work of the running iterations, on the burst buffer of the reserved nodes: how far each request has come, and the
// finished samples. A lost worker's request goes on from there, and so does a run after a restart.
//
// One process (the coordinator) writes and calls from one thread; a thread inside does all writing, so that no commit
// waits for the disk. Files: PATH/iteration_000012_00.h5, ... (io/tensor_store_format.hpp), plain HDF5 at every moment:
//
//   h5py.File("iteration_000012_00.h5")["latents"][i]          # slot i: [window + 3, S, C]
//   h5py.File("iteration_000012_00.h5")["records"][i]["steps"]  # of its last two commits
//
// A commit is visible whole or not at all, after SIGKILL at any instant (nothing is synced: SIGKILL leaves the page
// cache, and a power loss of the node, which ends the run, is found by the checksums). A request is known by its
// content (kind, iteration, prompt, seed, weight version and the weights' checksum, window), not by its id or lease,
// which a restarted run gives anew: it may redo iterations before the one that was cut off, and come to other weights
// of the same version. If the disk fails (full, unreadable, gone), `Problems` tells, states stay in memory within
// `pending_bytes`, samples are refused (in memory they would outlive nothing), and writing is tried again every
// `retry_seconds`.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "base/request.hpp"
#include "io/tensor_store_file.hpp"

namespace spotlight {

class TensorStore {
 public:
  struct Options {
    std::string path;  // folder, made if it is not there; one store a folder
    std::string run;   // names what the work depends on (settings, content of the files); others' files are not read
    TensorStoreSizes sizes;
    std::size_t pending_bytes = std::size_t{1} << 30;  // most memory for what is not yet written
    double retry_seconds = 5;
  };
  struct Counts {
    std::uint64_t commits = 0;     // written
    std::uint64_t superseded = 0;  // states that a newer one overtook before they were written
    std::uint64_t dropped = 0;     // refused: the disk is behind or fails
    std::uint64_t bytes = 0;       // written
    std::size_t pending_bytes = 0;
    double write_seconds = 0;  // of the writing thread
    bool failing = false;
  };

  // Reads what is there, verifying every checksum; half-made files are removed. FileError if the folder cannot be made
  // or listed.
  explicit TensorStore(const Options& options);
  ~TensorStore();  // finishes the commit being written; see WaitWritten
  TensorStore(const TensorStore&) = delete;
  TensorStore& operator=(const TensorStore&) = delete;

  // Requests of this kind and version are denoised with these weights from now on: work of others is not found. Without
  // it the checksum is 0. The last two versions are known.
  void NameWeights(RequestKind kind, std::uint64_t version, std::uint32_t checksum);

  // Whether the parts of a state or a sample have the sizes of this store's.
  bool Fits(const DenoiseState& state) const;
  bool Fits(const Sample& sample) const;

  // Takes a state (latents [S, C]) or a sample (kRollout: latents [window + 1, S, C]) to be written. Never waits for
  // the disk. A state overtakes older ones of its request; one that is not newer than what is known changes nothing.
  // False: refused, because pending_bytes are taken, the iteration is forgotten, or (samples) the disk fails.
  // Images are not kept: a sample with keep_image is refused, and a restart repeats what follows its last state.
  bool CommitState(const Request& request, DenoiseState state);
  bool CommitSample(Sample sample);

  // The newest whole state of an unfinished request, from memory or, verified, from the disk (then it may wait for it).
  std::optional<DenoiseState> State(const Request& request);
  // The finished samples of an iteration, in the order of their content. Request::id and epoch are 0.
  std::vector<Sample> Samples(std::uint32_t iteration);

  // Frees everything of older iterations; late commits to them are refused.
  void Forget(std::uint32_t before_iteration);
  // Waits at most so long until all that was committed is written; false: it is not, or the disk fails. For an orderly
  // end.
  bool WaitWritten(double seconds);

  Counts Count() const;
  // One line each, the oldest first: what was damaged, what the disk refused.
  std::vector<std::string> Problems() const;

 private:
  // iteration first: iterations are forgotten in ranges.
  using Key = std::tuple<std::uint32_t, RequestKind, std::uint32_t, std::uint64_t, std::uint64_t, std::uint32_t,
                         std::uint32_t, std::uint32_t, std::uint32_t>;
  struct Progress {
    std::uint32_t steps = 0;
    bool finished = false;
  };
  struct Entry {
    std::shared_ptr<const Commit> pending;  // newer than `written`
    bool queued = false;
    std::optional<Progress> written;        // what the slot holds
    std::shared_ptr<TensorStoreFile> file;  // null: no slot yet
    std::size_t slot = 0;
  };

  static Key KeyOf(const Request& request, std::uint32_t weights);
  // The lock is held.
  std::uint32_t WeightsOf(const Request& request) const;
  static Progress ProgressOf(const Commit& commit) { return {commit.state.steps, commit.finished}; }
  void OpenFiles();
  bool Add(std::shared_ptr<Commit> commit);
  std::optional<Commit> ReadEntry(Entry& entry);
  void RunWriter();
  void WriteFront(std::unique_lock<std::mutex>& lock);
  std::size_t WriteCommit(const Key& key, const Commit& commit);
  void GiveSlot(const Key& key);

  const Options options_;
  const TensorStoreFormat format_;
  mutable std::mutex mutex_;  // of all below
  std::condition_variable wake_, written_;
  std::map<Key, Entry> entries_;
  std::map<std::pair<std::uint64_t, RequestKind>, std::uint32_t> weights_;  // checksums, by version and kind
  std::deque<Key> queue_;
  std::map<std::uint32_t, std::vector<std::shared_ptr<TensorStoreFile>>> files_;  // by iteration
  std::vector<std::shared_ptr<TensorStoreFile>> forgotten_;                       // to be removed
  std::uint32_t first_iteration_ = 0;                                             // older ones are forgotten
  std::uint64_t sequence_ = 0;
  std::optional<Key> writing_;  // at the writer
  bool stop_ = false;
  Counts counts_;
  std::vector<std::string> problems_;
  std::thread writer_;
};

}  // namespace spotlight
