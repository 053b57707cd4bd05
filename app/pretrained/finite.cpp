#include "pretrained/finite.h"

#include <algorithm>
#include <cmath>

namespace remat::pretrained {

void FiniteCheck::look_at(const std::string& name, const at::Tensor& parameter) {
  const bool bias = name.ends_with("bias");
  const at::Tensor elements = parameter.detach().to(at::kFloat).contiguous();
  const float* const begin = elements.const_data_ptr<float>();
  const auto bad = std::count_if(begin, begin + elements.numel(), [&](float element) {
    return !std::isfinite(element) && !(bias && element < 0);  // NaN is not below 0
  });
  if (bad == 0 || ++count_ > kMostNamed) return;
  const std::string all = std::to_string(elements.numel());
  const std::string what = bad == elements.numel() ? "all " + all : std::to_string(bad) + " of " + all;
  found_ += (found_.empty() ? "'" : ", '") + name + "' (" + what + " elements)";
}

}  // namespace remat::pretrained
