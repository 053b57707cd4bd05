#include "device/float32_precision.h"

#include <c10/util/Exception.h>

namespace remat::device {
namespace {

using at::Float32Backend;
using at::Float32MatmulPrecision;
using at::Float32Op;
using at::Float32Precision;

constexpr std::array<Float32Op, 3> kProducts = {Float32Op::CONV, Float32Op::RNN, Float32Op::MATMUL};
constexpr size_t kMatmul = 2;

Float32Precision in_force(Float32Backend backend, Float32Op op) {
  return at::globalContext().float32Precision(backend, op);
}

void set(Float32Backend backend, Float32Op op, Float32Precision precision) {
  at::globalContext().setFloat32Precision(backend, op, precision);
}

Float32Precision known(Float32Precision precision) {
  return precision == Float32Precision::NONE ? Float32Precision::IEEE : precision;
}

/// What is set for an operator itself; nothing where it takes what is set above it, and PyTorch's default where that is
/// nothing either: that cannot be set again.
std::optional<Float32Precision> own_precision(Float32Backend backend, Float32Op op);

/// What is set for a backend as a whole; NONE where it takes what is set above it.
Float32Precision own_precision_of(Float32Backend backend) {
  return own_precision(backend, Float32Op::ALL).value_or(Float32Precision::NONE);
}

/// PyTorch tells only what is in force, so the setting above is another for a moment.
std::optional<Float32Precision> own_precision(Float32Backend backend, Float32Op op) {
  const Float32Precision now = in_force(backend, op);
  if (backend == Float32Backend::GENERIC) return now;
  const Float32Backend above = op == Float32Op::ALL ? Float32Backend::GENERIC : backend;
  const Float32Precision own_above = own_precision_of(above);
  const Float32Precision reduced = backend == Float32Backend::CUDA ? Float32Precision::TF32 : Float32Precision::BF16;
  const Float32Precision other = now == Float32Precision::IEEE ? reduced : Float32Precision::IEEE;
  Float32Precision own = now;
  bool has_default = false;
  set(above, Float32Op::ALL, other);
  if (in_force(backend, op) == other) {
    const Float32Precision generic = in_force(Float32Backend::GENERIC, Float32Op::ALL);
    set(above, Float32Op::ALL, Float32Precision::NONE);
    set(Float32Backend::GENERIC, Float32Op::ALL, Float32Precision::NONE);
    has_default = in_force(backend, op) != Float32Precision::NONE;
    own = Float32Precision::NONE;
    set(Float32Backend::GENERIC, Float32Op::ALL, generic);
  }
  set(above, Float32Op::ALL, own_above);
  return has_default ? std::nullopt : std::optional(own);
}

std::optional<Float32MatmulPrecision> legacy_precision() {
  try {
    return at::globalContext().float32MatmulPrecision();
  } catch (const c10::Error&) {  // the newer settings say something that it cannot
    return std::nullopt;
  }
}

/// Without a change of what oneDNN has.
void set_legacy_precision(Float32MatmulPrecision precision) {
  if (precision != Float32MatmulPrecision::MEDIUM) {
    return at::globalContext().setAllowTF32CuBLAS(precision == Float32MatmulPrecision::HIGH);
  }
  const auto of_mkldnn = own_precision(Float32Backend::MKLDNN, Float32Op::MATMUL);
  at::globalContext().setFloat32MatmulPrecision("medium");
  if (of_mkldnn) set(Float32Backend::MKLDNN, Float32Op::MATMUL, *of_mkldnn);
}

}  // namespace

Float32Precisions float32_precisions(Float32Backend backend) {
  Float32Precisions now;
  for (size_t i = 0; i < kProducts.size(); ++i) now[i] = known(in_force(backend, kProducts[i]));
  return now;
}

Float32PrecisionScope::Float32PrecisionScope(Float32Backend backend, const Float32Precisions& then)
    : backend_(backend) {
  const auto differs = [&](size_t i) { return known(in_force(backend, kProducts[i])) != then[i]; };
  // What cannot be set again had its value from above, where it was the same for all of them.
  for (size_t i = 0; i < kProducts.size() && !own_above_; ++i) {
    if (!differs(i) || own_precision(backend, kProducts[i])) continue;
    own_above_ = own_precision_of(backend);
    set(backend, Float32Op::ALL, then[i]);
  }
  for (size_t i = 0; i < kProducts.size(); ++i) {
    if (!differs(i)) continue;
    own_[i] = own_precision(backend, kProducts[i]);
    if (!own_[i]) continue;
    if (i == kMatmul && backend == Float32Backend::CUDA) legacy_ = legacy_precision();
    if (legacy_) at::globalContext().setAllowTF32CuBLAS(then[i] == Float32Precision::TF32);
    set(backend, kProducts[i], then[i]);
  }
}

Float32PrecisionScope::~Float32PrecisionScope() {
  if (legacy_) set_legacy_precision(*legacy_);
  for (size_t i = 0; i < kProducts.size(); ++i) {
    if (own_[i]) set(backend_, kProducts[i], *own_[i]);
  }
  if (own_above_) set(backend_, Float32Op::ALL, *own_above_);
}

}  // namespace remat::device
