// remat/support/number_text.h -- numbers as text, the same under every locale.
//
// printf(), std::to_string(double) and streams write numbers as the process's locale has them: with a comma in
// German and French, and streams group the digits of whole numbers too. Toolkits as GTK and Qt set it at start, and
// then a budget is "3,01 MiB", which no budget reads, and a picture is broken. std::to_string() of a whole number, and
// <charconv>, do not ask the locale.
#pragma once

#include <string>

namespace remat::support {

/// "3.14", "-0.50": `decimals` digits after the point, as printf's "%.*f" has them.
std::string fixed_text(double value, int decimals);

/// "0.25", "1e+09", "inf": `digits` significant digits at most, as printf's "%.*g" has them.
std::string short_text(double value, int digits = 6);

/// "[2, 3]": whole numbers, as a tensor's sizes.
template <class Numbers>
std::string list_text(const Numbers& numbers) {
  std::string text = "[";
  for (const auto number : numbers) text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  return text + "]";
}

}  // namespace remat::support
