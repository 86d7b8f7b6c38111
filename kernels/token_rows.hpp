// The rows of a batch whose samples differ in length: sample b owns rows first[b] .. first[b + 1) of a [rows, ...]
// array. No row is padding, so a sample's numbers never depend on how long the others are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace spotlight {

struct TokenRows {
  std::int64_t batch = 0;                // B
  const std::int64_t* first = nullptr;   // [B + 1], first[0] = 0
  const std::int64_t* sample = nullptr;  // [rows] whose row it is

  std::int64_t rows() const { return batch == 0 ? 0 : first[batch]; }
  std::int64_t tokens(std::int64_t b) const { return first[b + 1] - first[b]; }
  std::int64_t most_tokens() const {
    std::int64_t most = 0;
    for (std::int64_t b = 0; b < batch; ++b) most = std::max(most, tokens(b));
    return most;
  }
};

// Owns the arrays of a TokenRows.
class TokenRowTable {
 public:
  TokenRowTable() = default;
  explicit TokenRowTable(const std::vector<std::int64_t>& tokens) { Assign(tokens); }

  // tokens [B]: of each sample.
  void Assign(const std::vector<std::int64_t>& tokens) {
    first_.assign(1, 0);
    sample_.clear();
    for (std::size_t b = 0; b < tokens.size(); ++b) {
      first_.push_back(first_.back() + tokens[b]);
      sample_.insert(sample_.end(), static_cast<std::size_t>(tokens[b]), static_cast<std::int64_t>(b));
    }
  }
  TokenRows view() const { return {static_cast<std::int64_t>(first_.size()) - 1, first_.data(), sample_.data()}; }

 private:
  std::vector<std::int64_t> first_{0};
  std::vector<std::int64_t> sample_;
};

}  // namespace spotlight
