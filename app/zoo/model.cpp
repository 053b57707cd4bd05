#include "zoo/model.h"

namespace remat::zoo {

int64_t Model::parameter_count() const {
  int64_t count = 0;
  for (const auto& parameter : parameters()) count += parameter.numel();
  return count;
}

int64_t Model::trained_parameter_count() const {
  int64_t count = 0;
  for (const auto& parameter : parameters()) count += parameter.requires_grad() ? parameter.numel() : 0;
  return count;
}

at::Tensor Model::run_blocks(at::Tensor x) const {
  for (const auto& block : blocks_) x = run_block(block, std::move(x));
  return x;
}

at::Tensor Model::run_block(const Block& block, at::Tensor x) const {
  return runner_ ? runner_(block, std::move(x)) : block(std::move(x));
}

}  // namespace remat::zoo
