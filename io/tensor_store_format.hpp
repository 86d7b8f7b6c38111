// What a file of the tensor store looks like: an HDF5 file whose two datasets never move, so that a commit is a few
// writes at known offsets and never touches HDF5's own structures (those cannot be changed safely under SIGKILL).
//
//   /latents  float32 [slots, window + 3, S, C]  one slot a request: its rows 0 .. window are the latents before each
//   step
//                                                of the SDE window and after the last; the last two rows take turns
//                                                with the newest latents outside the window
//   /records  compound [slots, 2]                two commits of the slot, by turns; the one with the higher `sequence`
//   is
//                                                the newest, 0 is none. Fields: kRecordFields' in the .cpp
//
// A record is valid if its CRC-32 (zlib's, over the record with `crc32` = 0) is right, and whole if so is the CRC-32 of
// each row that it uses. Little-endian, packed, no filters; unwritten rows take no room (sparse file).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/request.hpp"
#include "base/tensor.hpp"

namespace spotlight {

// Sizes that all files of a store share.
struct TensorStoreSizes {
  Shape latent;             // [S, C] of one image
  std::size_t window = 0;   // most steps of an SDE window
  std::size_t terms = 0;    // scores a sample has
  std::size_t slots = 256;  // requests a file

  std::size_t Floats() const { return static_cast<std::size_t>(NumElements(latent)); }
  std::size_t Rows() const { return window + 3; }
};

inline constexpr std::uint32_t kNoRow = ~0u;

// One commit: a state on the way (`finished` = false) or a sample.
struct Commit {
  Request request;
  std::uint32_t weights = 0;  // checksum of those that it was denoised with
  bool finished = false;
  DenoiseState state;  // of a sample: trajectory = Sample::latents, log_probs; no latents
  std::uint32_t rank = 0;
  double reward = 0;
  std::vector<double> terms;
  std::vector<StepCoefficients> coefficients;

  // Memory, nearly.
  std::size_t Bytes() const {
    return sizeof(Commit) + (state.latents.size() + state.trajectory.size()) * sizeof(float);
  }
};

// A commit as its record has it: latents by row number and checksum.
struct CommitRecord {
  std::uint64_t sequence = 0;  // grows with every commit to the store
  std::uint32_t turn = 0;      // which of the slot's two records
  Commit commit;               // its state without latents and trajectory
  std::uint32_t newest = kNoRow;
  std::uint32_t window_rows = 0;         // rows 0 .. of the trajectory
  std::vector<std::uint32_t> row_crc32;  // [rows], of those in use
  bool Uses(std::uint32_t row) const { return row < window_rows || row == newest; }
};

class TensorStoreFormat {
 public:
  // `run` names what the content depends on; files with another are not read. Makes one file at `path` with HDF5, keeps
  // its beginning and removes it: the store's files are written without HDF5, which is not thread-safe. FileError if it
  // cannot be written.
  TensorStoreFormat(const TensorStoreSizes& sizes, const std::string& run, const std::string& path);

  const TensorStoreSizes& Sizes() const { return sizes_; }
  // The file up to the latents, without records.
  const std::string& Head() const { return head_; }
  std::size_t FileBytes() const;
  std::size_t RecordsOffset() const { return records_offset_; }
  std::size_t RecordBytes() const;
  std::size_t RecordOffset(std::size_t slot, std::size_t turn) const;
  std::size_t RowOffset(std::size_t slot, std::size_t row) const;

  std::string Encode(const CommitRecord& record) const;  // [RecordBytes()]
  // None if the checksum or a number is wrong.
  std::optional<CommitRecord> Decode(std::string_view bytes) const;

 private:
  TensorStoreSizes sizes_;
  std::string head_;
  std::size_t records_offset_ = 0;
  std::size_t latents_offset_ = 0;
};

// zlib's, as Python's zlib.crc32.
std::uint32_t Crc32(const void* bytes, std::size_t count);

}  // namespace spotlight
