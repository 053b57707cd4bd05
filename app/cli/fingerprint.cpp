#include "cli/fingerprint.h"

#include <cstdio>

#include <torch/torch.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace remat::cli {

Fingerprint fingerprint(std::string name, const at::Tensor& tensor) {
  if (!tensor.defined()) return {std::move(name), 0, 0};
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  const auto type = static_cast<int64_t>(tensor.scalar_type());
  XXH3_128bits_update(&state, &type, sizeof type);
  XXH3_128bits_update(&state, tensor.sizes().data(), tensor.sizes().size() * sizeof(int64_t));
  const auto packed = tensor.detach().contiguous();
  XXH3_128bits_update(&state, packed.const_data_ptr(), packed.nbytes());
  const auto digest = XXH3_128bits_digest(&state);
  return {std::move(name), digest.low64, digest.high64};
}

std::string fingerprint(std::string_view contents) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(contents.data(), contents.size())));
  return digits;
}

}  // namespace remat::cli
