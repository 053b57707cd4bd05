#include "operators/special_operator.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include <remat/error.h>

namespace remat {
namespace {

constexpr std::array kAll = {&special::kBatchNorm, &special::kCollectives, &special::kCompiledCode,
                             &special::kRecurrent, &special::kSoftmaxInPlace};

std::vector<const SpecialOperator*> all_but(std::string_view left_out) {
  std::vector<const SpecialOperator*> found(kAll.begin(), kAll.end());
  while (!left_out.empty()) {
    const size_t end = std::min(left_out.find(','), left_out.size());
    const std::string_view name = left_out.substr(0, end);
    left_out.remove_prefix(std::min(end + 1, left_out.size()));
    if (std::erase_if(found, [&](const SpecialOperator* special) { return special->name == name; }) > 0) continue;
    std::string names;
    for (const SpecialOperator* special : kAll) {
      if (!names.empty()) names += ',';
      names += special->name;
    }
    throw Error("[operators] REMAT_WITHOUT names \"" + std::string(name) + "\", which is none of " + names +
                "; name each once, with commas between them, or unset it");
  }
  return found;
}

}  // namespace

c10::ArrayRef<const SpecialOperator*> special_operators() {
  static const std::vector<const SpecialOperator*> those = [] {
    const char* const left_out = std::getenv("REMAT_WITHOUT");
    return all_but(left_out == nullptr ? "" : left_out);
  }();
  return those;
}

bool is_settled(Doubt doubt) {
  return std::ranges::any_of(special_operators(), [&](const SpecialOperator* s) { return s->settles == doubt; });
}

void check_special_operators() {
  for (const SpecialOperator* special : special_operators()) {
    if (special->check != nullptr) special->check();
  }
}

std::vector<std::shared_ptr<const void>> install_special_operators(const Installation& installation) {
  std::vector<std::shared_ptr<const void>> held;
  for (const SpecialOperator* special : special_operators()) {
    if (special->install == nullptr) continue;
    if (auto kernels = special->install(installation)) held.push_back(std::move(kernels));
  }
  return held;
}

}  // namespace remat
