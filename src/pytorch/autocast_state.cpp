#include "pytorch/autocast_state.h"

#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace remat {
namespace {

using device::kKeys;

void apply(const AutocastState& state) {
  for (size_t d = 0; d < kKeys.size(); ++d) {
    at::autocast::set_autocast_enabled(kKeys[d].type, state.enabled[d]);
    at::autocast::set_autocast_dtype(kKeys[d].type, state.types[d]);
  }
}

}  // namespace

AutocastState AutocastState::current() {
  AutocastState now;
  for (size_t d = 0; d < kKeys.size(); ++d) {
    const bool excluded = c10::impl::tls_is_dispatch_key_excluded(kKeys[d].autocast);
    now.enabled[d] = !excluded && at::autocast::is_autocast_enabled(kKeys[d].type);
    if (now.enabled[d]) now.types[d] = at::autocast::get_autocast_dtype(kKeys[d].type);
  }
  return now;
}

AutocastScope::AutocastScope(const AutocastState& state) : changed_(state.any()) {
  if (!changed_) return;
  cache_ = at::autocast::is_autocast_cache_enabled();
  for (size_t d = 0; d < kKeys.size(); ++d) {
    before_.enabled[d] = at::autocast::is_autocast_enabled(kKeys[d].type);
    before_.types[d] = at::autocast::get_autocast_dtype(kKeys[d].type);
  }
  AutocastState then = state;
  for (size_t d = 0; d < kKeys.size(); ++d) {
    if (!then.enabled[d]) then.types[d] = before_.types[d];
  }
  apply(then);
  at::autocast::set_autocast_cache_enabled(false);  // it would hold what kernels cast until autocast ends
}

AutocastScope::~AutocastScope() {
  if (!changed_) return;
  apply(before_);
  at::autocast::set_autocast_cache_enabled(cache_);
}

}  // namespace remat
