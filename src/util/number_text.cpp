#include <remat/support/number_text.h>

#include <array>
#include <charconv>
#include <limits>

namespace remat::support {
namespace {

// The largest number has 309 digits before the point.
constexpr size_t kMostDigits = std::numeric_limits<double>::max_exponent10 + 64;

std::string text_of(double value, std::chars_format format, int precision) {
  std::array<char, kMostDigits> text{};
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value, format, precision);
  return {text.data(), result.ptr};
}

}  // namespace

std::string fixed_text(double value, int decimals) { return text_of(value, std::chars_format::fixed, decimals); }

std::string short_text(double value, int digits) { return text_of(value, std::chars_format::general, digits); }

}  // namespace remat::support
