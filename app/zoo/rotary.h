// zoo/rotary.h -- rotary positions (Su et al. 2021, RoFormer), and the ways to stretch them beyond the length that a
// model was trained on.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

namespace remat::zoo {

/// All wavelengths become `factor` times longer.
struct LinearScaling {
  double factor = 1;
};

/// Inputs longer than trained_seq have a larger base, which grows with their length.
struct DynamicScaling {
  double factor = 1;
  int64_t trained_seq = 2048;
};

/// As Llama 3.1: wavelengths above trained_seq / low_frequency become `factor` times longer, those below
/// trained_seq / high_frequency stay.
struct Llama3Scaling {
  double factor = 32;
  double low_frequency = 1;
  double high_frequency = 4;
  int64_t trained_seq = 8192;
};

/// Peng et al. 2023: frequencies that turn less than `slow` times within trained_seq become `factor` times longer,
/// those that turn more than `fast` times stay.
struct YarnScaling {
  double factor = 1;
  int64_t trained_seq = 2048;
  double fast = 32;
  double slow = 1;
  bool truncate = true;  ///< the bounds between them are whole numbers of frequencies
};

/// Ding et al. 2024, LongRoPE: each wavelength has a factor of its own, another where the input is longer than
/// trained_seq.
struct LongScaling {
  std::vector<double> short_factors, long_factors;  ///< width / 2 each
  int64_t trained_seq = 4096;
};

struct RotaryConfig {
  int64_t width = 64;    ///< how many numbers of a head are rotated, its first ones; even
  double base = 10000;   ///< of the wavelengths
  double amplitude = 1;  ///< what cosines and sines are multiplied by
  std::variant<std::monostate, LinearScaling, DynamicScaling, Llama3Scaling, YarnScaling, LongScaling> scaling = {};
};

/// Throws remat::Error, which begins with `where`, for a config that cannot be.
void check_rotary(const RotaryConfig& config, const char* where);

/// Cosines and sines of every position's angles: (seq, width) each, in float32.
struct Rotation {
  at::Tensor cos, sin;
};

/// Of positions from 0 to seq - 1, on the device of `like`.
Rotation make_rotation(const RotaryConfig& config, int64_t seq, const at::Tensor& like);

/// `x` (..., seq, head width), rotated: the two numbers that are rotated together are width / 2 apart.
at::Tensor rotate(const at::Tensor& x, const Rotation& by);

}  // namespace remat::zoo
