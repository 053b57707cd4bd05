#include "cli/suggestion.h"

#include <algorithm>
#include <array>

namespace remat::cli {
namespace {

// Optimal string alignment: rows of the table for the prefixes of `a` that are two, one and no letters shorter.
size_t typing_errors(std::string_view a, std::string_view b) {
  std::array<std::vector<size_t>, 3> rows;
  for (auto& row : rows) row.resize(b.size() + 1);
  auto &before = rows[0], &above = rows[1], &row = rows[2];
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      const bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string closest(std::string_view word, const std::vector<std::string>& candidates) {
  // One error in three letters: more would make a suggestion of every short word.
  size_t least = std::max<size_t>(word.size() / 3, 1) + 1;
  std::string nearest;
  for (const auto& candidate : candidates) {
    const size_t errors = typing_errors(word, candidate);
    if (errors >= least) continue;
    least = errors;
    nearest = candidate;
  }
  return nearest;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const auto nearest = closest(word, candidates);
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

}  // namespace remat::cli
