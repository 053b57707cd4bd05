#include <remat/budget.h>
#include <remat/error.h>

#include <array>
#include <charconv>
#include <cmath>
#include <string>

#include <remat/support/number_text.h>

namespace remat {
namespace {

constexpr const char* kNoShare = "is not above 0% and at most 100%";

[[noreturn]] void bad_budget(std::string_view text, const std::string& why) {
  throw Error(
      "[budget] \"" + std::string(text) + "\" " + why + (why.ends_with('?') ? "" : ";") +
      " write bytes (\"2GiB\", \"1500MB\", 1073741824), a share of plain's activation peak (\"40%\"), \"device\" or "
      "\"pressure\"");
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view spaces = " \t";
  const auto first = text.find_first_not_of(spaces);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

/// Bytes in one unit, or 0 for an unknown unit.
double unit_bytes(std::string_view unit) {
  if (unit.empty() || unit == "b") return 1;
  constexpr std::string_view prefixes = "kmgt";
  const auto power = prefixes.find(unit.front());
  if (power == std::string_view::npos) return 0;
  const auto exponent = static_cast<double>(power + 1);
  const std::string_view rest = unit.substr(1);
  if (rest.empty() || rest == "ib") return std::pow(1024.0, exponent);
  if (rest == "b") return std::pow(1000.0, exponent);
  return 0;
}

/// A number without a unit that is too small for bytes and would do as a share: whoever writes "40" or "0.4" means 40
/// %.
void refuse_bare_share(std::string_view text, double number) {
  if (!(number > 0 && number <= 100)) return;
  const double share = number < 1 ? 100 * number : number;
  bad_budget(text, "would be " + support::short_text(number) + (number == 1 ? " byte" : " bytes") +
                       ", too few for any step: did you mean \"" + support::short_text(share) + "%\"?");
}

constexpr double kTooMany = 9223372036854775808.0;  // bytes: 2^63

/// The whole number of bytes that `digits` say. They are read as an integer where they are one: a double would round
/// the largest.
int64_t whole_bytes(std::string_view text, std::string_view digits, double number) {
  int64_t count = 0;
  const auto [rest, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (failure == std::errc{} && rest == digits.data() + digits.size()) return count;
  if (std::abs(number) >= kTooMany) bad_budget(text, "is too large");
  if (number != std::floor(number)) bad_budget(text, "is not a whole number of bytes");
  return static_cast<int64_t>(number);
}

}  // namespace

Budget Budget::bytes(int64_t count) {
  if (count <= 0) bad_budget(std::to_string(count), "is not a positive number of bytes");
  Budget budget;
  budget.kind_ = Kind::kBytes;
  budget.bytes_ = count;
  return budget;
}

Budget Budget::percent(double share) {
  if (!(share > 0 && share <= 100)) {
    std::array<char, 32> text{};
    bad_budget(std::string(text.data(), std::to_chars(text.data(), text.data() + text.size(), share).ptr) + "%",
               kNoShare);
  }
  Budget budget;
  budget.kind_ = Kind::kPercent;
  budget.share_ = share;
  return budget;
}

Budget Budget::pressure() {
  Budget budget;
  budget.kind_ = Kind::kPressure;
  return budget;
}

Budget Budget::parse(std::string_view text) {
  const std::string lowered = lower(trimmed(text));
  if (lowered == "device" || lowered == "device limit") return {};
  if (lowered == "pressure") return pressure();
  double number = 0;
  const char* const end = lowered.data() + lowered.size();
  const auto [rest, failure] = std::from_chars(lowered.data(), end, number);
  if (failure == std::errc::result_out_of_range) bad_budget(text, "is too large or too small");
  if (failure != std::errc{} || !std::isfinite(number)) bad_budget(text, "does not begin with a number");
  const std::string_view digits(lowered.data(), static_cast<size_t>(rest - lowered.data()));
  const std::string_view unit = trimmed({rest, static_cast<size_t>(end - rest)});
  // Checked here, where the text is still known, so that the message can quote it.
  if (unit == "%") {
    if (!(number > 0 && number <= 100)) bad_budget(text, kNoShare);
    return percent(number);
  }
  const double scale = unit_bytes(unit);
  if (scale == 0) bad_budget(text, "has an unknown unit");
  if (unit.empty()) refuse_bare_share(text, number);
  int64_t count = 0;
  if (scale == 1) {
    count = whole_bytes(text, digits, number);
  } else {
    const double total = number * scale;
    if (total >= kTooMany) bad_budget(text, "is too large");
    count = total > 0 ? static_cast<int64_t>(total) : 0;
  }
  if (count <= 0) bad_budget(text, "is not a positive number of bytes");
  return bytes(count);
}

Budget Budget::parse(const char* text) {
  if (text == nullptr) {
    throw Error(
        "[budget] a null pointer is no budget; give text such as \"40%\", or ask first whether getenv() found one");
  }
  return parse(std::string_view(text));
}

std::string Budget::to_string() const {
  switch (kind_) {
    case Kind::kBytes:
      return format_bytes(bytes_);
    case Kind::kPercent:
      return support::short_text(share_) + "%";
    case Kind::kPressure:
      return "pressure";
    case Kind::kPool:
      return "a pool of " + format_bytes(bytes_);
    case Kind::kDeviceLimit:
      break;
  }
  return "device limit";
}

std::string format_bytes(int64_t bytes) {
  constexpr std::array<const char*, 5> units = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  const double magnitude = std::abs(value);
  const int decimals = unit == 0 || magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
  return support::fixed_text(value, decimals) + " " + units[unit];
}

std::string format_exact_bytes(int64_t bytes) { return format_bytes(bytes) + " (" + std::to_string(bytes) + " bytes)"; }

}  // namespace remat
