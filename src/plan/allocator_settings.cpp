// PYTORCH_ALLOC_CONF as text.
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <string>

#include <remat/error.h>

#include "plan/caching_allocator.h"

namespace remat {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kMostMiB = int64_t{1} << 40;
/// What blocks lie where does not depend on these.
constexpr std::array kWithoutEffect = {std::string_view("pinned_"), std::string_view("release_lock_on_"),
                                       std::string_view("throw_on_"), std::string_view("graph_capture_")};

/// Reads the text from left to right, passing over blanks.
class Text {
 public:
  explicit Text(std::string_view text) : whole_(text), rest_(text) { skip_blanks(); }

  bool is_over() const { return rest_.empty(); }
  bool take(char expected) {
    if (rest_.empty() || rest_.front() != expected) return false;
    rest_.remove_prefix(1);
    skip_blanks();
    return true;
  }
  void need(char expected) {
    if (!take(expected)) refuse(std::string("'") + expected + "' is missing before '" + std::string(rest_) + "'");
  }
  /// Up to one of ":,[]".
  std::string_view word() {
    std::string_view word = rest_.substr(0, rest_.find_first_of(":,[]"));
    rest_.remove_prefix(word.size());
    while (!word.empty() && word.back() == ' ') word.remove_suffix(1);
    return word;
  }
  int64_t number(std::string_view option) {
    const std::string_view text = word();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < 1 || number > kMostMiB) {
      refuse(std::string(option) + " is '" + std::string(text) + "', and no whole number from 1 on");
    }
    return number;
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error("[allocator] the settings '" + std::string(whole_) + "' cannot be followed: " + what +
                "; give PYTORCH_ALLOC_CONF's text with max_split_size_mb, max_non_split_rounding_mb, "
                "large_segment_size_mb, roundup_power2_divisions and expandable_segments alone");
  }

 private:
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }

  const std::string_view whole_;
  std::string_view rest_;
};

bool flag(Text& text, std::string_view option) {
  const std::string_view word = text.word();
  if (word != "True" && word != "False") text.refuse(std::string(option) + " is neither True nor False");
  return word == "True";
}

int64_t divisions(Text& text) {
  const int64_t number = text.number("roundup_power2_divisions");
  if (!std::has_single_bit(static_cast<uint64_t>(number))) {
    text.refuse("roundup_power2_divisions is " + std::to_string(number) + ", and no power of two");
  }
  return number;
}

/// A number for all sizes, or [256:1,512:2,>:4]: for the sizes in MiB from each on.
void read_divisions(Text& text, AllocatorSettings& settings) {
  auto& all = settings.roundup_divisions;
  if (!text.take('[')) {
    all.fill(divisions(text));
    return;
  }
  auto next = all.begin();
  do {
    auto until = all.end();  // with this one
    if (text.take('>')) {
      text.need(':');
    } else {
      const int64_t size = text.number("a size of roundup_power2_divisions");
      if (!std::has_single_bit(static_cast<uint64_t>(size))) text.refuse("a size is no power of two");
      text.need(':');
      const auto place = std::min<int64_t>(std::countr_zero(static_cast<uint64_t>(size)), std::ssize(all) - 1);
      until = all.begin() + place + 1;
    }
    const int64_t number = divisions(text);
    if (next == all.begin() && until != all.end()) {
      std::fill(next, until, number);
    } else if (until == all.end()) {
      std::fill(next, until, number);
    } else if (next < until) {
      *std::prev(until) = number;
    }
    next = std::max(next, until);
  } while (text.take(','));
  text.need(']');
}

}  // namespace

AllocatorSettings parse_allocator_settings(std::string_view text_of_settings) {
  AllocatorSettings settings;
  Text text(text_of_settings);
  while (!text.is_over()) {
    const std::string_view option = text.word();
    text.need(':');
    if (option == "max_split_size_mb") {
      settings.max_split = text.number(option) * kMiB;
    } else if (option == "max_non_split_rounding_mb") {
      settings.max_rounding = text.number(option) * kMiB;
    } else if (option == "large_segment_size_mb") {
      settings.large_segment = text.number(option) * kMiB;
    } else if (option == "roundup_power2_divisions") {
      read_divisions(text, settings);
    } else if (option == "expandable_segments") {
      settings.expandable_segments = flag(text, option);
    } else if (option == "backend") {
      if (text.word() != "native") text.refuse("of the backends only native is modelled");
    } else if (std::ranges::any_of(kWithoutEffect, [&](std::string_view begin) { return option.starts_with(begin); })) {
      text.word();
    } else {
      text.refuse(std::string(option) + " is not modelled");
    }
    if (!text.take(',') && !text.is_over()) text.need(',');
  }
  if (settings.expandable_segments && settings.max_split != AllocatorSettings::kUnlimited) {
    text.refuse("max_split_size_mb together with expandable_segments is not modelled");
  }
  return settings;
}

}  // namespace remat
