#include "cli/comparison.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <span>

namespace remat::cli {
namespace {

std::string where(int64_t step) { return " in step " + std::to_string(step); }

// The name of the first tensor whose fingerprints differ, or nothing.
const std::string* first_different(const Fingerprints& a, const Fingerprints& b) {
  static const std::string another_number = "(another number of tensors)";
  if (a.size() != b.size()) return &another_number;
  const auto [left, right] = std::ranges::mismatch(a, b);
  return left == a.end() ? nullptr : &left->name;
}

// The step that begins without the optimizer's state is not like the others.
std::span<const StepResult> settled(const std::vector<StepResult>& results) {
  return std::span(results).subspan(results.size() > 1 ? 1 : 0);
}

}  // namespace

int64_t peak_bytes(const std::vector<StepResult>& results) {
  int64_t most = 0;
  for (const auto& result : results) most = std::max(most, result.peak_bytes);
  return most;
}

int64_t baseline_bytes(const std::vector<StepResult>& results) {
  int64_t most = 0;
  for (const auto& result : results) most = std::max(most, result.baseline_bytes);
  return most;
}

int64_t budget_bytes(const Budget& budget, const std::vector<StepResult>& plain) {
  if (budget.kind() != Budget::Kind::kPercent) return budget.byte_count();
  int64_t baseline = 0, peak = 0;
  for (const auto& result : settled(plain)) {
    baseline = std::max(baseline, result.baseline_bytes);
    peak = std::max(peak, result.peak_bytes);
  }
  return baseline + std::llround(budget.share() / 100 * static_cast<double>(peak - baseline));
}

std::optional<double> percentage_of(int64_t bytes, const std::vector<StepResult>& plain) {
  for (int percent = 1; percent <= 100; ++percent) {
    if (budget_bytes(Budget::percent(percent), plain) >= bytes) return percent;
  }
  return std::nullopt;
}

std::string first_difference(const std::vector<StepResult>& plain, const std::vector<StepResult>& other) {
  if (plain.size() != other.size()) return "the number of steps";
  for (size_t i = 0; i < plain.size(); ++i) {
    const auto &a = plain[i], &b = other[i];
    if (std::bit_cast<uint32_t>(a.loss) != std::bit_cast<uint32_t>(b.loss)) return "the loss" + where(a.step);
    if (const auto* name = first_different(a.gradients, b.gradients)) return "the gradient of " + *name + where(a.step);
    if (const auto* name = first_different(a.parameters, b.parameters))
      return *name + " after its update" + where(a.step);
  }
  return "";
}

std::vector<ReplayedOperator> replayed_operators(const std::vector<StepResult>& results) {
  std::map<std::string, ReplayedOperator> by_name;
  for (const auto& result : settled(results)) {
    if (!result.report) continue;
    for (const auto& replayed : result.report->replayed) {
      auto& sum = by_name.try_emplace(replayed.name, ReplayedOperator{.name = replayed.name}).first->second;
      sum.count += replayed.count;
      sum.seconds += replayed.seconds;
      sum.bytes += replayed.bytes;
    }
  }
  std::vector<ReplayedOperator> operators;
  operators.reserve(by_name.size());
  for (auto& [name, replayed] : by_name) operators.push_back(std::move(replayed));
  std::ranges::sort(operators, std::greater{}, &ReplayedOperator::seconds);
  return operators;
}

}  // namespace remat::cli
