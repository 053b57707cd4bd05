#include "tiles/choices.h"

#include <remat/tile_trials.h>

#include <atomic>
#include <utility>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "device/float32_precision.h"
#include "tiles/samples.h"

namespace remat {
namespace tiles {
namespace {

thread_local TileChoice g_last{0, 0, "nothing was computed yet"};
/// Goes up where choices are forgotten: those of before are found no more.
std::atomic<int64_t> g_generation = 0;

}  // namespace

Circumstances circumstances() {
  const at::Context& context = at::globalContext();
  Circumstances now = {g_generation.load(), at::get_num_threads(), int64_t(context.userEnabledMkldnn()),
                       int64_t(context.deterministicAlgorithms())};
  for (const at::Float32Precision precision : device::float32_precisions(at::Float32Backend::MKLDNN)) {
    now.push_back(int64_t(precision));
  }
  return now;
}

void append(Circumstances& to, const at::Tensor& tensor) {
  to.push_back(tensor.defined() ? int64_t(tensor.scalar_type()) : -1);
  if (!tensor.defined()) return;
  to.insert(to.end(), tensor.sizes().begin(), tensor.sizes().end());
  to.insert(to.end(), tensor.strides().begin(), tensor.strides().end());
  to.push_back(misalignment(tensor));
}

void set_last_choice(TileChoice choice) { g_last = std::move(choice); }

}  // namespace tiles

TileChoice last_tile_choice() { return tiles::g_last; }

void forget_tile_choices() { ++tiles::g_generation; }

}  // namespace remat
