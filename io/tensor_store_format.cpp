#include "io/tensor_store_format.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <hdf5.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/error.hpp"

namespace spotlight {
namespace {

constexpr std::int64_t kFormatVersion = 3;

// The fixed part of a record; `terms`, `row_crc32`, `log_probs` and `coefficients` follow.
struct RecordHead {
  std::uint64_t sequence, seed, weight_version;
  double reward;
  std::uint32_t crc32, finished, kind, iteration, prompt_index, window_begin, window_end, real_steps, steps, rank,
      newest, window_rows, scored, weights_checksum;
};
static_assert(sizeof(RecordHead) == 88 && std::is_trivially_copyable_v<RecordHead>);
static_assert(sizeof(StepCoefficients) == 6 * sizeof(float));

// HDF5 has no arrays of no elements.
std::size_t AtLeastOne(std::size_t count) { return std::max<std::size_t>(count, 1); }

// Offsets of the arrays behind the fixed part.
struct ArrayOffsets {
  explicit ArrayOffsets(const TensorStoreSizes& sizes)
      : terms(sizeof(RecordHead)),
        row_crc32(terms + AtLeastOne(sizes.terms) * sizeof(double)),
        log_probs(row_crc32 + sizes.Rows() * sizeof(std::uint32_t)),
        coefficients(log_probs + AtLeastOne(sizes.window) * sizeof(float)),
        end(coefficients + AtLeastOne(sizes.window) * sizeof(StepCoefficients)) {}
  std::size_t terms, row_crc32, log_probs, coefficients, end;
};

template <typename T>
void Store(std::string& bytes, std::size_t offset, const std::vector<T>& values) {
  if (!values.empty()) std::memcpy(bytes.data() + offset, values.data(), values.size() * sizeof(T));
}

template <typename T>
std::vector<T> Load(std::string_view bytes, std::size_t offset, std::size_t count) {
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), bytes.data() + offset, count * sizeof(T));
  return values;
}

// What can fail here does so because the file cannot be written.
void Check(bool works, const std::string& path) {
  if (!works) throw FileError(path + ": HDF5 cannot write it; is the disk full?");
}

// Owns an HDF5 identifier.
class Id {
 public:
  Id(hid_t id, const std::string& path) : id_(id) { Check(id_ >= 0, path); }
  ~Id() { H5Idec_ref(id_); }
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  operator hid_t() const { return id_; }  // NOLINT: passes as the C identifier that it is

 private:
  hid_t id_;
};

hid_t RecordType(const TensorStoreSizes& sizes) {
  const ArrayOffsets at(sizes);
  const hid_t type = H5Tcreate(H5T_COMPOUND, at.end);
#define SPOTLIGHT_MEMBER(name, member) H5Tinsert(type, #name, offsetof(RecordHead, name), member)
  SPOTLIGHT_MEMBER(sequence, H5T_STD_U64LE);
  SPOTLIGHT_MEMBER(seed, H5T_STD_U64LE);
  SPOTLIGHT_MEMBER(weight_version, H5T_STD_U64LE);
  SPOTLIGHT_MEMBER(reward, H5T_IEEE_F64LE);
  SPOTLIGHT_MEMBER(crc32, H5T_STD_U32LE);
  SPOTLIGHT_MEMBER(finished, H5T_STD_U32LE);
  SPOTLIGHT_MEMBER(kind, H5T_STD_U32LE);
  SPOTLIGHT_MEMBER(iteration, H5T_STD_U32LE);
  SPOTLIGHT_MEMBER(prompt_index, H5T_STD_U32LE);
  SPOTLIGHT_MEMBER(window_begin, H5T_STD_U32LE);
  SPOTLIGHT_MEMBER(window_end, H5T_STD_U32LE);
  SPOTLIGHT_MEMBER(real_steps, H5T_STD_U32LE);
  SPOTLIGHT_MEMBER(steps, H5T_STD_U32LE);
  SPOTLIGHT_MEMBER(rank, H5T_STD_U32LE);
  SPOTLIGHT_MEMBER(newest, H5T_STD_U32LE);
  SPOTLIGHT_MEMBER(window_rows, H5T_STD_U32LE);
  SPOTLIGHT_MEMBER(scored, H5T_STD_U32LE);
  SPOTLIGHT_MEMBER(weights_checksum, H5T_STD_U32LE);
#undef SPOTLIGHT_MEMBER
  const auto insert = [type](const char* name, std::size_t offset, hid_t element, const std::vector<hsize_t>& extents) {
    const hid_t array = H5Tarray_create2(element, static_cast<unsigned>(extents.size()), extents.data());
    H5Tinsert(type, name, offset, array);
    H5Tclose(array);
  };
  const hsize_t window = AtLeastOne(sizes.window);
  insert("terms", at.terms, H5T_IEEE_F64LE, {AtLeastOne(sizes.terms)});
  insert("row_crc32", at.row_crc32, H5T_STD_U32LE, {sizes.Rows()});
  insert("log_probs", at.log_probs, H5T_IEEE_F32LE, {window});
  insert("coefficients", at.coefficients, H5T_IEEE_F32LE, {window, 6});
  return type;
}

// A file that is removed again, while HDF5 makes it.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path) : path_(path) {
    const hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_file_locking(access, false, true);
    file_ = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    Check(file_ >= 0, path);
    descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    unlink(path.c_str());
  }
  ~TemporaryFile() {
    H5Fclose(file_);
    if (descriptor_ >= 0) close(descriptor_);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  // A contiguous dataset whose place in the file is fixed now; returns its offset. Unfilled: what is never written
  // never takes room.
  std::size_t CreateDataset(const char* name, hid_t type, const std::vector<hsize_t>& extents, bool filled) {
    const Id create(H5Pcreate(H5P_DATASET_CREATE), path_);
    H5Pset_layout(create, H5D_CONTIGUOUS);
    H5Pset_alloc_time(create, H5D_ALLOC_TIME_EARLY);
    H5Pset_fill_time(create, filled ? H5D_FILL_TIME_ALLOC : H5D_FILL_TIME_NEVER);
    H5Pset_obj_track_times(create, false);  // the head is compared byte by byte
    const Id space(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), path_);
    const Id dataset(H5Dcreate2(file_, name, type, space, H5P_DEFAULT, create, H5P_DEFAULT), path_);
    return H5Dget_offset(dataset);
  }
  void SetText(const char* name, const std::string& text) {
    const Id type(H5Tcopy(H5T_C_S1), path_);
    H5Tset_size(type, H5T_VARIABLE);  // h5py reads it as text, not as bytes
    H5Tset_cset(type, H5T_CSET_UTF8);
    const Id space(H5Screate(H5S_SCALAR), path_);
    const Id attribute(H5Acreate2(file_, name, type, space, H5P_DEFAULT, H5P_DEFAULT), path_);
    const char* const pointer = text.c_str();
    Check(H5Awrite(attribute, type, &pointer) >= 0, path_);
  }
  // The first bytes as they are in the finished file of `size` bytes.
  std::string Head(std::size_t count, std::size_t size) {
    Check(H5Fflush(file_, H5F_SCOPE_LOCAL) >= 0, path_);
    std::string head(count, '\0');
    struct stat status {};
    Check(pread(descriptor_, head.data(), count, 0) == static_cast<ssize_t>(count), path_);
    Check(fstat(descriptor_, &status) == 0, path_);
    SPOTLIGHT_REQUIRE(static_cast<std::size_t>(status.st_size) == size, "the latents come last");
    return head;
  }

 private:
  const std::string path_;
  int descriptor_ = -1;
  hid_t file_ = -1;
};

}  // namespace

TensorStoreFormat::TensorStoreFormat(const TensorStoreSizes& sizes, const std::string& run, const std::string& path)
    : sizes_(sizes) {
  SPOTLIGHT_REQUIRE(sizes.latent.size() == 2 && sizes.Floats() > 0 && sizes.slots > 0, "sizes of the tensor store");
  // As in h5.cpp, whichever comes first: HDF5's clean-up at exit may crash.
  [[maybe_unused]] static const herr_t kNoExitHandler = H5dont_atexit();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  TemporaryFile file(path);
  file.SetText("format", fmt::format("spotlight tensor store {}", kFormatVersion));
  file.SetText("run", run);
  const Id record(RecordType(sizes), path);
  records_offset_ = file.CreateDataset("records", record, {sizes.slots, 2}, true);
  const auto rows = static_cast<hsize_t>(sizes.latent[0]), columns = static_cast<hsize_t>(sizes.latent[1]);
  latents_offset_ = file.CreateDataset("latents", H5T_IEEE_F32LE, {sizes.slots, sizes.Rows(), rows, columns}, false);
  head_ = file.Head(latents_offset_, FileBytes());
}

std::size_t TensorStoreFormat::RecordBytes() const { return ArrayOffsets(sizes_).end; }

std::size_t TensorStoreFormat::FileBytes() const { return RowOffset(sizes_.slots, 0); }

std::size_t TensorStoreFormat::RecordOffset(std::size_t slot, std::size_t turn) const {
  return records_offset_ + (2 * slot + turn) * RecordBytes();
}

std::size_t TensorStoreFormat::RowOffset(std::size_t slot, std::size_t row) const {
  return latents_offset_ + (slot * sizes_.Rows() + row) * sizes_.Floats() * sizeof(float);
}

std::string TensorStoreFormat::Encode(const CommitRecord& record) const {
  const Commit& commit = record.commit;
  const Request& request = commit.request;
  const RecordHead head{.sequence = record.sequence,
                        .seed = request.seed,
                        .weight_version = request.weight_version,
                        .reward = commit.reward,
                        .crc32 = 0,
                        .finished = commit.finished ? 1u : 0u,
                        .kind = static_cast<std::uint32_t>(request.kind),
                        .iteration = request.iteration,
                        .prompt_index = request.prompt_index,
                        .window_begin = request.window_begin,
                        .window_end = request.window_end,
                        .real_steps = request.real_steps,
                        .steps = commit.state.steps,
                        .rank = commit.rank,
                        .newest = record.newest,
                        .window_rows = record.window_rows,
                        .scored = static_cast<std::uint32_t>(commit.state.log_probs.size()),
                        .weights_checksum = commit.weights};
  const ArrayOffsets at(sizes_);
  std::string bytes(at.end, '\0');
  std::memcpy(bytes.data(), &head, sizeof(head));
  Store(bytes, at.terms, commit.terms);
  Store(bytes, at.row_crc32, record.row_crc32);
  Store(bytes, at.log_probs, commit.state.log_probs);
  Store(bytes, at.coefficients, commit.coefficients);
  const std::uint32_t crc = Crc32(bytes.data(), bytes.size());
  std::memcpy(bytes.data() + offsetof(RecordHead, crc32), &crc, sizeof(crc));
  return bytes;
}

std::optional<CommitRecord> TensorStoreFormat::Decode(std::string_view bytes) const {
  RecordHead head;
  std::memcpy(&head, bytes.data(), sizeof(head));
  std::string unsealed(bytes);
  std::memset(unsealed.data() + offsetof(RecordHead, crc32), 0, sizeof(head.crc32));
  if (head.sequence == 0 || Crc32(unsealed.data(), unsealed.size()) != head.crc32) return std::nullopt;
  const bool possible = head.kind <= static_cast<std::uint32_t>(RequestKind::kEvaluate) &&
                        head.window_rows <= sizes_.window + 1 && head.scored <= sizes_.window &&
                        (head.newest < sizes_.Rows() || head.newest == kNoRow);
  if (!possible) return std::nullopt;

  CommitRecord record;
  record.sequence = head.sequence;
  record.newest = head.newest;
  record.window_rows = head.window_rows;
  Commit& commit = record.commit;
  commit.request = {.kind = static_cast<RequestKind>(head.kind),
                    .iteration = head.iteration,
                    .prompt_index = head.prompt_index,
                    .seed = head.seed,
                    .weight_version = head.weight_version,
                    .window_begin = head.window_begin,
                    .window_end = head.window_end,
                    .real_steps = head.real_steps};
  commit.weights = head.weights_checksum;
  commit.finished = head.finished != 0;
  commit.rank = head.rank;
  commit.reward = head.reward;
  commit.state.steps = head.steps;
  const ArrayOffsets at(sizes_);
  record.row_crc32 = Load<std::uint32_t>(bytes, at.row_crc32, sizes_.Rows());
  commit.state.log_probs = Load<float>(bytes, at.log_probs, head.scored);
  if (commit.finished) {
    commit.terms = Load<double>(bytes, at.terms, sizes_.terms);
    commit.coefficients = Load<StepCoefficients>(bytes, at.coefficients, head.scored);
  }
  return record;
}

std::uint32_t Crc32(const void* bytes, std::size_t count) {
  return static_cast<std::uint32_t>(crc32_z(0, static_cast<const Bytef*>(bytes), count));
}

}  // namespace spotlight
