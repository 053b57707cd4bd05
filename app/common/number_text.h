// common/number_text.h -- numbers as text with a point, whatever the process's locale is.
#pragma once

#include <array>
#include <charconv>
#include <limits>
#include <string>

namespace remat::common {

/// The largest number has 309 digits before the point.
inline std::string number_text(double value, std::chars_format format, int precision) {
  std::array<char, std::numeric_limits<double>::max_exponent10 + 64> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value, format, precision).ptr};
}

/// "3.14", "-0.50": as printf's "%.*f" has them.
inline std::string fixed_text(double value, int decimals) {
  return number_text(value, std::chars_format::fixed, decimals);
}

/// "0.25", "1e+09", "inf": as printf's "%g" has them.
inline std::string short_text(double value) { return number_text(value, std::chars_format::general, 6); }

/// "[2, 3]": whole numbers, as a tensor's sizes.
template <class Numbers>
std::string list_text(const Numbers& numbers) {
  std::string text = "[";
  for (const auto number : numbers) text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  return text + "]";
}

}  // namespace remat::common
