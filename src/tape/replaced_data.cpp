#include "tape/replaced_data.h"

#include <algorithm>
#include <cstring>

namespace remat {
namespace {

/// Each is a reference to a count, which has no public address.
bool are_one_counter(const c10::VariableVersion& a, const c10::VariableVersion& b) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): one pointer
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

bool ReplacedData::is_replaced(const c10::TensorImpl* tensor, const c10::VariableVersion& counter,
                               int64_t saved_at) const {
  if (by_tensor_.empty()) return false;
  const auto found = by_tensor_.find(tensor);
  return found != by_tensor_.end() && std::ranges::any_of(found->second, [&](const Replacement& replacement) {
           return saved_at <= replacement.moment && are_one_counter(counter, replacement.counter);
         });
}

}  // namespace remat
