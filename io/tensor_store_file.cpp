#include "io/tensor_store_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "io/atomic_file.hpp"

namespace spotlight {
namespace {

[[noreturn]] void Fail(const char* what, const std::string& path) {
  throw FileError(fmt::format("{}: cannot {}: {}", path, what, std::strerror(errno)));
}

void WriteAt(int descriptor, const std::string& path, const void* bytes, std::size_t count, std::size_t offset) {
  for (const char* from = static_cast<const char*>(bytes); count > 0;) {
    const ssize_t written = pwrite(descriptor, from, count, static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) Fail("write", path);
    from += written;
    offset += static_cast<std::size_t>(written);
    count -= static_cast<std::size_t>(written);
  }
}

// False if the file ends before or the system cannot read it.
bool ReadAt(int descriptor, void* bytes, std::size_t count, std::size_t offset) {
  for (char* to = static_cast<char*>(bytes); count > 0;) {
    const ssize_t got = pread(descriptor, to, count, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    offset += static_cast<std::size_t>(got);
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

// The row for the newest latents of a state: inside the window the one that the next states' trajectory has them in, at
// its end the trajectory's last, else the one of the last two that the predecessor does not use.
std::uint32_t RowOfNewest(const Commit& commit, std::uint32_t window_rows, const CommitRecord* before,
                          std::uint32_t window) {
  const Request& request = commit.request;
  const DenoiseState& state = commit.state;
  if (request.kind == RequestKind::kRollout && state.steps >= request.window_begin) {
    const std::uint32_t row = state.steps - request.window_begin;
    if (state.steps < request.window_end && window_rows == row) return row;
    const bool last = state.steps == request.window_end && window_rows == row + 1;
    if (last && std::equal(state.latents.begin(), state.latents.end(), state.trajectory.end() - state.latents.size())) {
      return row;
    }
  }
  return before != nullptr && before->newest == window + 1 ? window + 2 : window + 1;
}

}  // namespace

TensorStoreFile::TensorStoreFile(const std::string& path, int descriptor, const TensorStoreFormat& format)
    : path_(path), descriptor_(descriptor), format_(format), newest_(format.Sizes().slots) {}

TensorStoreFile::~TensorStoreFile() { close(descriptor_); }

std::shared_ptr<TensorStoreFile> TensorStoreFile::Create(const std::string& path, const TensorStoreFormat& format) {
  std::error_code error;  // whatever it is, open() tells it better
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  const std::string aside = AsidePath(path);
  const int descriptor = open(aside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) Fail("create", path);
  std::shared_ptr<TensorStoreFile> file(new TensorStoreFile(path, descriptor, format));
  try {
    WriteAt(descriptor, path, format.Head().data(), format.Head().size(), 0);
    if (ftruncate(descriptor, static_cast<off_t>(format.FileBytes())) != 0) Fail("extend", path);
    if (std::rename(aside.c_str(), path.c_str()) != 0) Fail("create", path);
  } catch (const FileError&) {
    unlink(aside.c_str());
    throw;
  }
  return file;
}

std::shared_ptr<TensorStoreFile> TensorStoreFile::Open(const std::string& path, const TensorStoreFormat& format,
                                                       std::vector<std::string>& problems) {
  const auto refuse = [&](const std::string& why) {
    problems.push_back(fmt::format("{}: {}; it is left as it is and its requests start anew", path, why));
    return nullptr;
  };
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat status {};
  if (descriptor < 0 || fstat(descriptor, &status) != 0) return refuse(std::strerror(errno));
  std::shared_ptr<TensorStoreFile> file(new TensorStoreFile(path, descriptor, format));
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return refuse("is empty");

  const std::size_t records = format.RecordsOffset();
  const std::size_t record_bytes = format.RecordBytes();
  const std::size_t behind = format.RecordOffset(format.Sizes().slots, 0);
  std::string head(format.Head().size(), '\0');
  if (!ReadAt(descriptor, head.data(), std::min(size, head.size()), 0)) return refuse(std::strerror(errno));
  const bool same = size >= behind && head.compare(0, records, format.Head(), 0, records) == 0 &&
                    head.compare(behind, std::string::npos, format.Head(), behind, std::string::npos) == 0;
  if (!same) return refuse("was made by another version or run or with other sizes, or its beginning is damaged");
  if (size != format.FileBytes()) {
    problems.push_back(fmt::format("{}: has {} bytes instead of {}: it was cut", path, size, format.FileBytes()));
    if (ftruncate(descriptor, static_cast<off_t>(format.FileBytes())) != 0) return refuse(std::strerror(errno));
  }

  for (std::size_t slot = 0; slot < format.Sizes().slots; ++slot) {
    const std::string_view both(head.data() + format.RecordOffset(slot, 0), 2 * record_bytes);
    if (both.find_first_not_of('\0') == std::string_view::npos) continue;
    file->taken_ = slot + 1;
    file->Read(slot, problems);
  }
  return file;
}

std::optional<std::size_t> TensorStoreFile::TakeSlot() {
  if (taken_ == newest_.size()) return std::nullopt;
  return taken_++;
}

std::optional<std::size_t> TensorStoreFile::Write(std::size_t slot, const Commit& commit, std::uint64_t sequence) {
  const std::size_t floats = format_.Sizes().Floats();
  const auto window = static_cast<std::uint32_t>(format_.Sizes().window);
  const CommitRecord* const before = newest_[slot] ? &*newest_[slot] : nullptr;
  CommitRecord record;
  record.sequence = sequence;
  record.window_rows = static_cast<std::uint32_t>(commit.state.trajectory.size() / floats);
  record.row_crc32.resize(format_.Sizes().Rows());

  std::vector<std::pair<std::uint32_t, const float*>> wanted;
  for (std::uint32_t row = 0; row < record.window_rows; ++row) {
    wanted.emplace_back(row, commit.state.trajectory.data() + row * floats);
  }
  if (!commit.finished) {
    record.newest = RowOfNewest(commit, record.window_rows, before, window);
    if (record.newest >= record.window_rows) wanted.emplace_back(record.newest, commit.state.latents.data());
  }
  std::vector<std::pair<std::uint32_t, const float*>> missing;
  for (const auto& [row, values] : wanted) {
    record.row_crc32[row] = Crc32(values, floats * sizeof(float));
    if (before == nullptr || !before->Uses(row)) {
      missing.emplace_back(row, values);
    } else if (before->row_crc32[row] != record.row_crc32[row]) {
      return std::nullopt;
    }
  }
  for (const auto& [row, values] : missing) {
    WriteAt(descriptor_, path_, values, floats * sizeof(float), format_.RowOffset(slot, row));
  }

  record.commit.request = commit.request;
  record.commit.weights = commit.weights;
  record.commit.finished = commit.finished;
  record.commit.state.steps = commit.state.steps;
  record.commit.state.log_probs = commit.state.log_probs;
  record.commit.rank = commit.rank;
  record.commit.reward = commit.reward;
  record.commit.terms = commit.terms;
  record.commit.coefficients = commit.coefficients;
  record.turn = before == nullptr ? 0 : 1 - before->turn;
  const std::string bytes = format_.Encode(record);
  WriteAt(descriptor_, path_, bytes.data(), bytes.size(), format_.RecordOffset(slot, record.turn));
  if (commit.finished) {
    // Where the file system cannot do it, the room stays taken until the file is removed.
    fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(format_.RowOffset(slot, window + 1)), static_cast<off_t>(2 * floats * sizeof(float)));
  }
  newest_[slot] = std::move(record);
  return missing.size() * floats * sizeof(float) + bytes.size();
}

std::optional<Commit> TensorStoreFile::Read(std::size_t slot, std::vector<std::string>& problems) {
  std::vector<CommitRecord> records;
  std::string bytes(format_.RecordBytes(), '\0');
  std::string damage;
  for (const std::uint32_t turn : {0u, 1u}) {
    if (!ReadAt(descriptor_, bytes.data(), bytes.size(), format_.RecordOffset(slot, turn))) {
      damage = "a record cannot be read";
    } else if (std::optional<CommitRecord> record = format_.Decode(bytes)) {
      record->turn = turn;
      records.push_back(std::move(*record));
    } else if (bytes.find_first_not_of('\0') != std::string::npos) {
      damage = "a record is unfinished or damaged";
    }
  }
  std::sort(records.begin(), records.end(), [](auto& a, auto& b) { return a.sequence > b.sequence; });
  for (CommitRecord& record : records) {
    std::optional<Commit> commit = ReadCommit(slot, record);
    if (!commit) {
      damage = fmt::format("the latents of step {} of the {} are damaged", record.commit.state.steps,
                           RequestName(record.commit.request));
      continue;
    }
    if (!damage.empty()) {
      problems.push_back(fmt::format("{}: slot {}: {}; step {} of the {} is used", path_, slot, damage,
                                     commit->state.steps, RequestName(commit->request)));
    }
    newest_[slot] = std::move(record);
    return commit;
  }
  problems.push_back(fmt::format("{}: slot {}: {}; the request starts anew", path_, slot, damage));
  newest_[slot].reset();
  return std::nullopt;
}

std::optional<Commit> TensorStoreFile::ReadCommit(std::size_t slot, const CommitRecord& record) const {
  const std::size_t floats = format_.Sizes().Floats();
  const auto read_row = [&](std::uint32_t row, float* values) {
    return ReadAt(descriptor_, values, floats * sizeof(float), format_.RowOffset(slot, row)) &&
           Crc32(values, floats * sizeof(float)) == record.row_crc32[row];
  };
  Commit commit = record.commit;
  commit.state.trajectory.resize(record.window_rows * floats);
  for (std::uint32_t row = 0; row < record.window_rows; ++row) {
    if (!read_row(row, commit.state.trajectory.data() + row * floats)) return std::nullopt;
  }
  if (record.newest == kNoRow) return commit;
  commit.state.latents.resize(floats);
  if (!read_row(record.newest, commit.state.latents.data())) return std::nullopt;
  return commit;
}

std::string RequestName(const Request& request) {
  static constexpr const char* kNames[] = {"rollout", "exploration", "evaluation"};
  return fmt::format("{} of prompt {}, seed {}, iteration {}", kNames[static_cast<std::size_t>(request.kind)],
                     request.prompt_index, request.seed, request.iteration);
}

}  // namespace spotlight
