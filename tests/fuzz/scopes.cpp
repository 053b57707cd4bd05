#include "fuzz/machine.h"

namespace remat::fuzz {

std::vector<ScopeRange> random_scopes(const Program& program, Random& random) {
  static const std::vector<std::string> names = {"aten::mul",
                                                 "aten::add",
                                                 "aten::sin",
                                                 "aten::relu",
                                                 "aten::sigmoid",
                                                 "aten::tanh",
                                                 "aten::mm",
                                                 "aten::addmm",
                                                 "aten::_softmax",
                                                 "aten::native_layer_norm",
                                                 "aten::convolution",
                                                 "aten::exp",
                                                 "aten::native_dropout",
                                                 "aten::div",
                                                 "aten::relu_",
                                                 "aten::mul_",
                                                 "aten::clone",
                                                 "aten::cat",
                                                 "aten::index",
                                                 "aten::gelu",
                                                 "aten::bernoulli_"};
  std::vector<ScopeRange> scopes = {};
  for (int64_t i = random.between(1, 5); i > 0; --i) {
    ScopeRange range;
    range.begin = static_cast<int>(random.below(program.length));
    range.end = range.begin + static_cast<int>(random.between(1, 12));
    std::vector<std::string> kept;
    for (const auto& name : names) {
      if (random.chance(40)) kept.push_back(name);
    }
    const int64_t kind = random.below(8);
    range.policy = kind == 0   ? Policy::keep_all()
                   : kind == 1 ? Policy::keep_compute()
                   : kind < 4  ? Policy::drop_all()
                               : Policy::keep_operators(kept);
    scopes.push_back(std::move(range));
  }
  return scopes;
}

}  // namespace remat::fuzz
