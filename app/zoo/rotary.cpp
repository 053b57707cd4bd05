#include "zoo/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include <torch/torch.h>

#include <remat/error.h>

namespace remat::zoo {
namespace {

/// A factor for each frequency, given those of a model that was not stretched and the length of the input.
struct Stretch {
  const RotaryConfig& config;
  at::Tensor frequencies;
  int64_t seq;

  at::Tensor operator()(std::monostate) const { return frequencies; }
  at::Tensor operator()(const LinearScaling& scaling) const { return frequencies / scaling.factor; }
  at::Tensor operator()(const DynamicScaling&) const { return frequencies; }  // its base is another

  at::Tensor operator()(const Llama3Scaling& scaling) const {
    const auto turns = frequencies * (static_cast<double>(scaling.trained_seq) / (2 * std::numbers::pi));
    const auto unscaled =  // which share of the frequency stays as it is
        ((turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency)).clamp(0, 1);
    return frequencies * ((1 - unscaled) / scaling.factor + unscaled);
  }

  at::Tensor operator()(const YarnScaling& scaling) const {
    const auto width = static_cast<double>(config.width);
    const auto place = [&](double turns) {  // of the frequency that turns so often within trained_seq
      return width * std::log(static_cast<double>(scaling.trained_seq) / (turns * 2 * std::numbers::pi)) /
             (2 * std::log(config.base));
    };
    double first = place(scaling.fast), last = place(scaling.slow);
    if (scaling.truncate) first = std::floor(first), last = std::ceil(last);
    first = std::max(first, 0.0), last = std::min(last, width - 1);
    if (first == last) last += 0.001;
    const auto places = at::arange(config.width / 2, frequencies.options());
    const auto scaled = ((places - first) / (last - first)).clamp(0, 1);  // which share is stretched
    return frequencies / scaling.factor * scaled + frequencies * (1 - scaled);
  }

  at::Tensor operator()(const LongScaling& scaling) const {
    const auto& factors = seq > scaling.trained_seq ? scaling.long_factors : scaling.short_factors;
    return frequencies / at::tensor(factors, frequencies.options());
  }
};

/// Bloc97 and emozilla 2023, "dynamic NTK".
double base_of(const RotaryConfig& config, int64_t seq) {
  const auto* const dynamic = std::get_if<DynamicScaling>(&config.scaling);
  if (dynamic == nullptr || seq <= dynamic->trained_seq) return config.base;
  const auto width = static_cast<double>(config.width);
  const double longer = static_cast<double>(seq) / static_cast<double>(dynamic->trained_seq);
  return config.base * std::pow(dynamic->factor * longer - (dynamic->factor - 1), width / (width - 2));
}

void expect(bool holds, const char* where, const std::string& what) {
  if (!holds) throw Error(std::string(where) + " " + what + "; change it");
}

}  // namespace

void check_rotary(const RotaryConfig& config, const char* where) {
  expect(config.width >= 2 && config.width % 2 == 0, where,
         "rotary positions rotate " + std::to_string(config.width) + " numbers of a head, and need pairs");
  expect(config.base > 0 && config.amplitude > 0, where, "base and amplitude of rotary positions must be more than 0");
  const auto positive = [&](double factor, int64_t trained_seq) {
    expect(factor > 0 && trained_seq > 0, where, "the factor and the length of scaled positions must be more than 0");
  };
  if (const auto* linear = std::get_if<LinearScaling>(&config.scaling)) positive(linear->factor, 1);
  if (const auto* dynamic = std::get_if<DynamicScaling>(&config.scaling)) {
    positive(dynamic->factor, dynamic->trained_seq);
    expect(dynamic->factor >= 1 && config.width > 2, where,
           "dynamic positions need a factor of 1 or more, and to rotate more than 2 numbers of a head");
  }
  if (const auto* llama = std::get_if<Llama3Scaling>(&config.scaling)) {
    positive(llama->factor, llama->trained_seq);
    expect(llama->high_frequency > llama->low_frequency, where, "high_frequency must be more than low_frequency");
  }
  if (const auto* yarn = std::get_if<YarnScaling>(&config.scaling)) {
    positive(yarn->factor, yarn->trained_seq);
    expect(yarn->fast > 0 && yarn->slow > 0 && config.base > 1, where,
           "fast and slow must be more than 0, base more than 1");
  }
  if (const auto* longer = std::get_if<LongScaling>(&config.scaling)) {
    for (const auto& factors : {longer->short_factors, longer->long_factors}) {
      expect(std::ssize(factors) == config.width / 2, where,
             std::to_string(factors.size()) + " factors are given for " + std::to_string(config.width / 2) +
                 " wavelengths");
      expect(std::ranges::all_of(factors, [](double factor) { return factor > 0; }), where,
             "factors of wavelengths must be more than 0");
    }
  }
}

Rotation make_rotation(const RotaryConfig& config, int64_t seq, const at::Tensor& like) {
  const auto options = like.options().dtype(at::kFloat);
  const auto exponents = at::arange(0, config.width, 2, options) / static_cast<double>(config.width);
  const auto frequencies = at::pow(base_of(config, seq), exponents).reciprocal();
  const auto angles =
      at::outer(at::arange(seq, options), std::visit(Stretch{config, frequencies, seq}, config.scaling));
  const auto both = at::cat({angles, angles}, -1);
  if (config.amplitude == 1) return {both.cos(), both.sin()};
  return {both.cos() * config.amplitude, both.sin() * config.amplitude};
}

at::Tensor rotate(const at::Tensor& x, const Rotation& by) {
  const int64_t width = by.cos.size(-1), whole = x.size(-1);
  if (width < whole) return at::cat({rotate(x.narrow(-1, 0, width), by), x.narrow(-1, width, whole - width)}, -1);
  const auto halves = x.chunk(2, -1);
  return x * by.cos + at::cat({-halves[1], halves[0]}, -1) * by.sin;
}

}  // namespace remat::zoo
