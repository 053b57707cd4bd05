#include "tiles/samples.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/mean.h>

namespace remat::tiles {
namespace {

/// Numbers between the rows of matrices that overlap: more than between columns, so that kernels go along rows.
constexpr int64_t kStep = 3;
/// Bytes of a line, and of the largest registers.
constexpr int64_t kAlignment = 64;

c10::ScalarType integer_of_size(size_t bytes) {
  switch (bytes) {
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    default:
      return at::kLong;
  }
}

}  // namespace

void fill(at::Tensor& tensor, uint64_t seed, double deviation) {
  tensor.normal_(0, deviation, at::detail::createCPUGenerator(seed));
}

int64_t misalignment(const at::Tensor& tensor) {
  return int64_t(reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kAlignment);
}

at::Tensor sample_like(const at::Tensor& like, uint64_t seed, double deviation) {
  const int64_t offset = misalignment(like) / int64_t(like.element_size());
  int64_t length = offset + 1;
  for (int64_t d = 0; d < like.dim(); ++d) length += (like.size(d) - 1) * like.stride(d);
  at::Tensor memory = at::empty({length}, like.options());
  fill(memory, seed, deviation);  // all of it: elements of `like` may share numbers
  return memory.as_strided(like.sizes(), like.strides(), offset);
}

at::Tensor overlapping(int64_t rows, int64_t columns, uint64_t seed, const at::TensorOptions& options) {
  at::Tensor numbers = at::empty({kStep * rows + columns}, options);
  fill(numbers, seed);
  numbers.sub_(numbers.mean());
  return numbers.as_strided({rows, columns}, {kStep, 1});
}

bool have_same_bits(const at::Tensor& a, const at::Tensor& b) {
  const c10::ScalarType type = integer_of_size(a.element_size());
  return at::equal(a.view(type), b.view(type));
}

}  // namespace remat::tiles
