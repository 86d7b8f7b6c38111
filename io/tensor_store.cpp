#include "io/tensor_store.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/error.hpp"
#include "io/atomic_file.hpp"
#include "io/tensor_store_folder.hpp"

namespace spotlight {
namespace {

// Makes the store's folder and the format of its files.
TensorStoreFormat PrepareFolder(const TensorStore::Options& options) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(options.path, error);
  if (error) throw FileError(fmt::format("{}: cannot make the folder: {}", options.path, error.message()));
  if (access(options.path.c_str(), W_OK) != 0) {
    throw FileError(fmt::format("{}: cannot write to the folder: {}", options.path, std::strerror(errno)));
  }
  try {
    // Where the next start removes it, should this one be killed.
    return {options.sizes, options.run, AsidePath(options.path + "/" + TensorStoreFileName(0, 0))};
  } catch (const FileError&) {
    // What is on a full disk can be read nevertheless.
    return {options.sizes, options.run,
            (fs::temp_directory_path() / fmt::format("spotlight_{}.h5", getpid())).string()};
  }
}

}  // namespace

TensorStore::TensorStore(const Options& options) : options_(options), format_(PrepareFolder(options)) {
  OpenFiles();
  // Signals are the caller's: none may interrupt the writer.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  writer_ = std::thread([this] { RunWriter(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TensorStore::~TensorStore() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  writer_.join();
}

TensorStore::Key TensorStore::KeyOf(const Request& request, std::uint32_t weights) {
  return {request.iteration,    request.kind,       request.prompt_index, request.seed, request.weight_version,
          request.window_begin, request.window_end, request.real_steps,   weights};
}

std::uint32_t TensorStore::WeightsOf(const Request& request) const {
  const auto found = weights_.find({request.weight_version, request.kind});
  return found == weights_.end() ? 0 : found->second;
}

void TensorStore::NameWeights(RequestKind kind, std::uint64_t version, std::uint32_t checksum) {
  const std::lock_guard lock(mutex_);
  std::erase_if(weights_, [&](const auto& entry) { return entry.first.first + 1 < version; });
  weights_[{version, kind}] = checksum;
}

void TensorStore::OpenFiles() {
  for (const std::string& name : ListTensorStore(options_.path)) {
    const std::string path = options_.path + "/" + name;
    const std::shared_ptr<TensorStoreFile> file = TensorStoreFile::Open(path, format_, problems_);
    if (file == nullptr) continue;
    files_[*TensorStoreIteration(name)].push_back(file);
    for (std::size_t slot = 0; slot < file->SlotsTaken(); ++slot) {
      const std::optional<CommitRecord>& record = file->Newest(slot);
      if (!record) continue;
      sequence_ = std::max(sequence_, record->sequence);
      Entry& entry = entries_[KeyOf(record->commit.request, record->commit.weights)];
      if (entry.file != nullptr && entry.file->Newest(entry.slot)->sequence > record->sequence) continue;
      entry.file = file;
      entry.slot = slot;
      entry.written = ProgressOf(record->commit);
    }
  }
}

bool TensorStore::Fits(const DenoiseState& state) const {
  const TensorStoreSizes& sizes = options_.sizes;
  return state.latents.size() == sizes.Floats() && state.trajectory.size() % sizes.Floats() == 0 &&
         state.trajectory.size() / sizes.Floats() <= sizes.window + 1 && state.log_probs.size() <= sizes.window;
}

bool TensorStore::Fits(const Sample& sample) const {
  const TensorStoreSizes& sizes = options_.sizes;
  return sample.latents.size() % sizes.Floats() == 0 && sample.latents.size() / sizes.Floats() <= sizes.window + 1 &&
         sample.log_probs.size() <= sizes.window && sample.steps.size() == sample.log_probs.size() &&
         sample.terms.size() == sizes.terms;
}

bool TensorStore::CommitState(const Request& request, DenoiseState state) {
  SPOTLIGHT_REQUIRE(Fits(state), RequestName(request));
  return Add(std::make_shared<Commit>(Commit{.request = request, .state = std::move(state)}));
}

bool TensorStore::CommitSample(Sample sample) {
  SPOTLIGHT_REQUIRE(Fits(sample), RequestName(sample.request));
  if (sample.request.keep_image) return false;
  return Add(std::make_shared<Commit>(
      Commit{.request = sample.request,
             .finished = true,
             .state = {.trajectory = std::move(sample.latents), .log_probs = std::move(sample.log_probs)},
             .rank = sample.rank,
             .reward = sample.reward,
             .terms = std::move(sample.terms),
             .coefficients = std::move(sample.steps)}));
}

bool TensorStore::Add(std::shared_ptr<Commit> commit) {
  std::shared_ptr<const Commit> overtaken;  // freed when the lock is
  const std::lock_guard lock(mutex_);
  commit->weights = WeightsOf(commit->request);
  const Key key = KeyOf(commit->request, commit->weights);
  if (commit->request.iteration < first_iteration_) return false;
  Entry& entry = entries_[key];
  const auto covers = [&](const Progress& known) {
    return known.finished || (!commit->finished && known.steps >= commit->state.steps);
  };
  if (entry.written && covers(*entry.written)) return true;
  if (entry.pending != nullptr && covers(ProgressOf(*entry.pending))) return true;

  const std::size_t freed = entry.pending == nullptr ? 0 : entry.pending->Bytes();
  const bool useless = commit->finished && counts_.failing;
  if (useless || counts_.pending_bytes - freed + commit->Bytes() > options_.pending_bytes) {
    ++counts_.dropped;
    // Nobody in this run will ask for the state of what is finished: its memory is for others.
    if (useless && entry.pending != nullptr && writing_ != key) {
      counts_.pending_bytes -= freed;
      overtaken = std::move(entry.pending);
    }
    return false;
  }
  if (entry.pending != nullptr) ++counts_.superseded;
  counts_.pending_bytes += commit->Bytes() - freed;
  overtaken = std::exchange(entry.pending, std::move(commit));
  if (!std::exchange(entry.queued, true)) queue_.push_back(key);
  wake_.notify_one();
  return true;
}

std::optional<DenoiseState> TensorStore::State(const Request& request) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(KeyOf(request, WeightsOf(request)));
  if (found == entries_.end()) return std::nullopt;
  std::optional<Commit> commit = ReadEntry(found->second);
  if (!commit || commit->finished) return std::nullopt;
  return std::move(commit->state);
}

std::vector<Sample> TensorStore::Samples(std::uint32_t iteration) {
  std::vector<Sample> samples;
  const std::lock_guard lock(mutex_);
  for (auto& [key, entry] : entries_) {
    if (std::get<0>(key) != iteration) continue;
    if (!(entry.pending != nullptr ? entry.pending->finished : entry.written && entry.written->finished)) continue;
    std::optional<Commit> commit = ReadEntry(entry);
    if (!commit || !commit->finished || commit->weights != WeightsOf(commit->request)) continue;
    Sample& sample = samples.emplace_back();
    sample.request = commit->request;
    sample.request.id = 0;
    sample.request.epoch = 0;
    sample.rank = commit->rank;
    sample.reward = commit->reward;
    sample.terms = std::move(commit->terms);
    sample.latents = std::move(commit->state.trajectory);
    sample.log_probs = std::move(commit->state.log_probs);
    sample.steps = std::move(commit->coefficients);
  }
  return samples;
}

// The lock is held: where nothing is pending, the writer is not at this slot and cannot come to it.
std::optional<Commit> TensorStore::ReadEntry(Entry& entry) {
  if (entry.pending != nullptr) return *entry.pending;
  if (!entry.written) return std::nullopt;
  std::vector<std::string> problems;
  std::optional<Commit> commit = entry.file->Read(entry.slot, problems);
  for (const std::string& problem : problems) {  // damage stays until the slot is written again
    if (std::find(problems_.begin(), problems_.end(), problem) == problems_.end()) problems_.push_back(problem);
  }
  entry.written.reset();
  if (commit) entry.written = ProgressOf(*commit);
  return commit;
}

void TensorStore::Forget(std::uint32_t before_iteration) {
  {
    const std::lock_guard lock(mutex_);
    first_iteration_ = std::max(first_iteration_, before_iteration);
    while (!entries_.empty() && std::get<0>(entries_.begin()->first) < before_iteration) {
      const Entry& entry = entries_.begin()->second;
      if (entry.pending != nullptr) counts_.pending_bytes -= entry.pending->Bytes();
      entries_.erase(entries_.begin());
    }
    std::erase_if(queue_, [&](const Key& key) { return std::get<0>(key) < before_iteration; });
    while (!files_.empty() && files_.begin()->first < before_iteration) {
      std::move(files_.begin()->second.begin(), files_.begin()->second.end(), std::back_inserter(forgotten_));
      files_.erase(files_.begin());
    }
  }
  wake_.notify_one();
}

bool TensorStore::WaitWritten(double seconds) {
  std::unique_lock lock(mutex_);
  const auto done = [this] { return queue_.empty() && !writing_.has_value(); };
  written_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return done() || counts_.failing; });
  return done();
}

TensorStore::Counts TensorStore::Count() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::vector<std::string> TensorStore::Problems() const {
  const std::lock_guard lock(mutex_);
  return problems_;
}

}  // namespace spotlight
