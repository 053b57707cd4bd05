#include "device/vector_math.h"

#include <array>
#include <string>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/full.h>

#include "device/unobserved.h"

namespace remat::device {
namespace {

/// The operators whose kernels call MKL's: IMPLEMENT_VML_MKL in ATen/cpu/vml.h.
constexpr std::array kOperators = {"acos", "asin", "atan",  "cos", "erf",  "erfc", "erfinv", "exp",
                                   "log",  "log2", "log10", "sin", "sqrt", "tan",  "tanh",   "trunc"};

}  // namespace

void make_first_calls_of_vector_math() {
  static const bool made = [] {
    const Unobserved unobserved;
    for (const auto type : {at::kFloat, at::kDouble}) {
      const at::Tensor half = at::full({1}, 0.5, at::TensorOptions().dtype(type).device(at::kCPU));
      for (const char* const name : kOperators) {
        const auto op = c10::Dispatcher::singleton().findSchemaOrThrow((std::string("aten::") + name).c_str(), "");
        op.typed<at::Tensor(const at::Tensor&)>().call(half);
      }
    }
    return true;
  }();
  static_cast<void>(made);
}

}  // namespace remat::device
