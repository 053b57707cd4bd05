// What a search for what fits is asked for, and the sizes that it may choose from.
#include <algorithm>
#include <string>
#include <vector>

#include <remat/error.h>

#include <remat/fit.h>
#include <remat/support/number_text.h>

namespace remat {

void FitOptions::check() const {
  const auto refuse = [](const std::string& why) { throw Error("[fit] " + why); };
  if (sizes.empty()) refuse("there are no sizes; give those to choose from");
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1) refuse("size " + std::to_string(sizes[i]) + " has no meaning; give 1 or more");
    if (i > 0 && sizes[i] <= sizes[i - 1]) {
      refuse("size " + std::to_string(sizes[i]) + " follows " + std::to_string(sizes[i - 1]) +
             "; give sizes in ascending order, each once");
    }
  }
  if (budget_bytes < 1) {
    refuse("a budget of " + std::to_string(budget_bytes) + " bytes has no meaning; give a positive number");
  }
  if (!(most_loss_percent >= 0 && most_loss_percent <= 100)) {
    refuse("a loss of " + support::short_text(most_loss_percent) + " % has no meaning; give 0 to 100");
  }
  if (effective < 0) {
    refuse("an effective " + what + " of " + std::to_string(effective) + " has no meaning; give 1 or more");
  }
}

std::vector<int64_t> fit_sizes(int64_t least, int64_t most, int64_t step) {
  constexpr int64_t kInADoubling = 8, kTooLarge = int64_t{1} << 62;
  if (least < 1 || most < least || most >= kTooLarge || step < 1) {
    throw Error("[fit] there are no sizes from " + std::to_string(least) + " to " + std::to_string(most) + " by " +
                std::to_string(step) + "; give 1 <= least <= most and step >= 1");
  }
  // A multiple of the step that is larger than `most` may be so by more than there are numbers for.
  if (step > most) return {};
  std::vector<int64_t> sizes;
  for (int64_t n = (least + step - 1) / step; n * step <= most;) {
    sizes.push_back(n * step);
    int64_t next = 1;
    while (next * 2 * kInADoubling <= n) next *= 2;
    n = n / next * next + next;
  }
  return sizes;
}

}  // namespace remat
