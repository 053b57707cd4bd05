// cli/fingerprint.h -- 128 bits that stand for the bits of a tensor, so that two runs can be compared step by step
// without storing every gradient of one of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace at {
class Tensor;
}

namespace remat::cli {

/// Of one named tensor. Type, shape and every bit count: 0.0 and -0.0 differ.
struct Fingerprint {
  std::string name;
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Fingerprint&) const = default;
};

using Fingerprints = std::vector<Fingerprint>;

/// An undefined tensor (a parameter without gradient) has a fingerprint too.
Fingerprint fingerprint(std::string name, const at::Tensor& tensor);

/// 64 bits that stand for the contents of a file, in hexadecimal digits.
std::string fingerprint(std::string_view contents);

}  // namespace remat::cli
