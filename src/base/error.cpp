#include "base/error.hpp"

#include <algorithm>
#include <numeric>

namespace spotlight {
namespace {

std::string& MutableProcessName() {
  static std::string name = "this process";
  return name;
}

std::size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

}  // namespace

void FailRequire(const char* expression, const char* file, int line, const std::string& message) {
  throw InternalError(std::string(file) + ":" + std::to_string(line) + ": " + expression + " does not hold (" +
                      message + ") [" + ProcessName() + "]");
}

void SetProcessName(const std::string& name) { MutableProcessName() = name; }

const std::string& ProcessName() { return MutableProcessName(); }

std::string NearestName(const std::string& name, const std::vector<std::string>& candidates) {
  std::string best;
  // A third of a word may be wrong; of a short one, one letter.
  std::size_t best_distance = std::max<std::size_t>(name.size() > 3 ? 2 : 1, name.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = EditDistance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace spotlight
