#include <remat/support/svg.h>

#include <cmath>

#include <remat/support/number_text.h>

namespace remat::support {

std::string escape_xml(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
  }
  return escaped;
}

std::string svg_number(double value) {
  std::string number = fixed_text(value, 2);
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
  return number == "-0" ? "0" : number;
}

double tick_distance(double largest, int most) {
  const double power = std::pow(10, std::floor(std::log10(largest / most)));
  for (const double round : {1.0, 2.0, 5.0}) {
    if (round * power * most >= largest * (1 - 1e-9)) return round * power;
  }
  return 10 * power;
}

}  // namespace remat::support
