// The picture of memory over a step: plain's as a pale shape behind, the plan's in front, stacked by what it is for.
#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remat/budget.h>
#include <remat/error.h>
#include <remat/run.h>
#include <remat/timeline.h>

#include <remat/support/svg.h>
#include "report/columns.h"
#include "report/parts.h"

namespace remat {
namespace {

constexpr int kWidth = 800, kHeight = 360, kLegendHeight = 24;
constexpr double kLeft = 56, kRight = 664, kTop = 34, kBottom = 306;  // the plot; labels stand to its right
constexpr size_t kColumns = 310;
constexpr int kMostTicks = 4, kMostTimeTicks = 8;
constexpr double kLineHeight = 17, kTextHeight = 14, kLetterWidth = 7;  // of 13 px text, generously

// As GitHub's pages, light and dark.
constexpr const char* kStyle =
    "<style>text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}"
    ".soft{fill:#59636e}.grid{stroke:#8c959f;stroke-opacity:.3}.axis{stroke:#8c959f}"
    ".plain{fill:#8c959f;fill-opacity:.16;stroke:#59636e;stroke-width:1.2}"
    ".lead{stroke:#59636e;stroke-width:1}.budget{stroke:#1f2328;stroke-width:1.5;stroke-dasharray:6 4}"
    "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.soft{fill:#9198a1}"
    ".plain{stroke:#9198a1}.lead{stroke:#9198a1}.budget{stroke:#e6edf3}}</style>\n";

struct Unit {
  const char* name;
  double size;
};

Unit byte_unit(double largest) {
  for (const Unit unit : {Unit{"GiB", 1073741824.0}, Unit{"MiB", 1048576.0}, Unit{"KiB", 1024.0}}) {
    if (largest >= unit.size) return unit;
  }
  return {"bytes", 1};
}

Unit time_unit(const Timeline& timeline) {
  if (!timeline.timed) return {"", 1};
  for (const Unit unit : {Unit{"s", 1.0}, Unit{"ms", 1e-3}}) {
    if (timeline.end_seconds >= unit.size) return unit;
  }
  return {"µs", 1e-6};
}

struct Box {
  double left = 0, top = 0, right = 0, bottom = 0;
  bool meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

class Picture {
 public:
  explicit Picture(const Run& run)
      : plain_(make_timeline(run.graph)),
        step_(run.plan ? make_timeline(run.graph, run.plan->actions, run.plan->budget_bytes) : plain_),
        baseline_bytes_(run.graph.baseline_bytes),
        plain_peak_bytes_(run.report && run.report->completed ? run.report->plain_peak_bytes : plain_.peak_bytes()),
        budget_(run.plan     ? run.plan->budget_bytes
                : run.report ? run.report->budget_bytes
                             : 0),
        has_plan_(run.plan.has_value()),
        seconds_(std::max({plain_.end_seconds, step_.end_seconds, 1e-12})) {
    most_ = std::max(1.0, static_cast<double>(std::max(plain_.peak_bytes(), step_.peak_bytes())));
    // A budget that is far beyond what either needs is no part of the picture.
    if (static_cast<double>(budget_) > 1.25 * most_) budget_ = 0;
    most_ = std::max(most_, static_cast<double>(budget_));
    const Unit unit = byte_unit(most_);
    const double distance = support::tick_distance(most_ / unit.size, kMostTicks);
    top_bytes_ = std::max(most_ * 1.08, unit.size * distance);  // a line of text has room above
    columns_ = columns_of(step_, seconds_, kColumns);
    if (has_plan_) plain_columns_ = columns_of(plain_, seconds_, kColumns);
  }

  std::string draw() {
    add_axes();
    if (has_plan_) add_plain();
    for (size_t part = 0; part < kParts.size(); ++part) add_part(part);
    add_budget();
    add_passes();
    add_labels();
    add_legend();
    const std::string width = std::to_string(kWidth),
                      height = std::to_string(kHeight + (legend_.empty() ? 0 : kLegendHeight));
    return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + width + " " + height + "\" width=\"" + width +
           "\" height=\"" + height + "\" role=\"img\" aria-label=\"" + summary() + "\">\n" + kStyle + out_ + "</svg>\n";
  }

 private:
  double x(double seconds) const { return kLeft + seconds / seconds_ * (kRight - kLeft); }
  double y(double bytes) const { return kBottom - bytes / top_bytes_ * (kBottom - kTop); }
  double column_x(size_t column) const { return kLeft + static_cast<double>(column) / kColumns * (kRight - kLeft); }

  std::string summary() const {
    return "Memory over one training step: plain peaks at " + format_bytes(plain_peak_bytes_) +
           (has_plan_ ? ", remat at " + format_bytes(step_.peak_bytes()) : "");
  }

  void add_line(const char* kind, double x1, double y1, double x2, double y2) {
    out_ += "<path class=\"" + std::string(kind) + "\" d=\"M" + support::svg_number(x1) + " " +
            support::svg_number(y1) + "L" + support::svg_number(x2) + " " + support::svg_number(y2) + "\"/>\n";
  }

  void add_text(double at_x, double at_y, const char* anchor, const std::string& text, const std::string& more = "") {
    out_ += "<text x=\"" + support::svg_number(at_x) + "\" y=\"" + support::svg_number(at_y) + "\" text-anchor=\"" +
            anchor + "\"" + more + ">" + support::escape_xml(text) + "</text>\n";
  }

  void add_axes() {
    const Unit bytes = byte_unit(most_), time = time_unit(step_);
    const double distance = support::tick_distance(top_bytes_ / bytes.size, kMostTicks);
    for (int i = 0; i * distance * bytes.size <= top_bytes_; ++i) {
      const double at = y(i * distance * bytes.size);
      add_line(i == 0 ? "axis" : "grid", kLeft, at, kRight, at);
      add_text(kLeft - 8, at + 4.5, "end", support::svg_number(i * distance), " class=\"soft\"");
    }
    add_text(kLeft - 8, kTop - 12, "end", bytes.name, " class=\"soft\"");
    const double end = seconds_ / time.size, time_distance = support::tick_distance(end, kMostTimeTicks);
    for (int i = 0; i * time_distance <= end * (1 + 1e-9); ++i) {
      const double at = x(i * time_distance * time.size);
      add_line("axis", at, kBottom, at, kBottom + 5);
      add_text(at, kBottom + 20, "middle", support::svg_number(i * time_distance), " class=\"soft\"");
    }
    const std::string what = step_.timed ? "time in the step, " + std::string(time.name) : "events of the step";
    add_text((kLeft + kRight) / 2, kBottom + 42, "middle", what, " class=\"soft\"");
  }

  void add_plain() {
    const auto& columns = plain_columns_;
    std::string path = "M" + support::svg_number(kLeft) + " " + support::svg_number(kBottom);
    append_steps(path, columns, [](const TimelineMoment& m) { return static_cast<double>(m.parts.total()); });
    out_ += "<path class=\"plain\" d=\"" + path + "V" + support::svg_number(kBottom) + "\"/>\n";
  }

  /// Up to the height of each column, from left to right.
  template <class Height>
  void append_steps(std::string& path, const std::vector<const TimelineMoment*>& columns, Height height) const {
    std::string last;
    for (size_t c = 0; c < columns.size() && columns[c] != nullptr; ++c) {
      const std::string here = coordinate(y(height(*columns[c])));
      if (here == last) {
        path.erase(path.rfind('H'));
      } else {
        path += "V" + here;
      }
      path += "H" + coordinate(column_x(c + 1));
      last = here;
    }
  }

  /// A tenth of a pixel is not seen.
  static std::string coordinate(double value) { return support::svg_number(std::round(value * 10) / 10); }

  static double below(const TimelineMoment& moment, size_t part) {
    int64_t sum = 0;
    for (size_t p = 0; p < part; ++p) sum += moment.parts.*kParts[p].bytes;
    return static_cast<double>(sum);
  }

  /// From the bottom to the part's upper edge: those above are drawn first... the lower ones over it.
  void add_part(size_t from_the_bottom) {
    const size_t part = kParts.size() - 1 - from_the_bottom;
    std::string path = "M" + support::svg_number(kLeft) + " " + support::svg_number(kBottom);
    append_steps(path, columns_, [&](const TimelineMoment& m) { return below(m, part + 1); });
    if (largest(part) > 0) {
      out_ += "<path fill=\"" + std::string(kParts[part].color) + "\" d=\"" + path + "V" +
              support::svg_number(kBottom) + "\"/>\n";
    }
  }

  int64_t largest(size_t part) const {
    int64_t most = 0;
    for (const TimelineMoment* moment : columns_) {
      if (moment != nullptr) most = std::max(most, moment->parts.*kParts[part].bytes);
    }
    return most;
  }

  void add_budget() {
    if (budget_ <= 0) return;
    const double at = y(static_cast<double>(budget_));
    add_line("budget", kLeft, at, kRight + 8, at);
    add_text(kRight + 14, at + 4.5, "start", "budget " + format_bytes(budget_));
    const double base = static_cast<double>(baseline_bytes_), most = static_cast<double>(plain_peak_bytes_) - base;
    if (has_plan_ && most > 0) {
      const auto share = std::llround(100 * (static_cast<double>(budget_) - base) / most);
      add_text(kRight + 14, at + 4.5 + kLineHeight, "start", std::to_string(share) + "% of plain's", " class=\"soft\"");
      add_text(kRight + 14, at + 4.5 + 2 * kLineHeight, "start", "activation peak", " class=\"soft\"");
    }
    lines_.push_back({kLeft, at - 3, kRight, at + 3});
  }

  void add_passes() {
    if (step_.backward_seconds >= step_.end_seconds) return;
    const double at = x(step_.backward_seconds);
    add_line("grid", at, kTop - 26, at, kBottom);
    add_text(at - 10, kTop - 14, "end", "forward", " class=\"soft\"");
    add_text(at + 10, kTop - 14, "start", "backward", " class=\"soft\"");
    taken_.push_back(
        {at - 10 - text_width("forward"), kTop - 14 - kTextHeight, at + 10 + text_width("backward"), kTop - 10});
  }

  void add_labels() {
    if (has_plan_) add_peak_of_plain();
    std::vector<size_t> outside;
    for (size_t part = 0; part < kParts.size(); ++part) {
      if (static_cast<double>(largest(part)) >= 0.004 * top_bytes_ && !label_within(part)) outside.push_back(part);
    }
    // The one on the right stands lowest, so that no line crosses a text.
    std::ranges::sort(outside, std::greater{}, [this](size_t part) { return thickest(part); });
    for (const size_t part : outside) {
      if (!label_above(part)) legend_.push_back(part);
    }
  }

  /// Above it, or where there is no room beside it. In the worst case it has no label: the budget's says what it is.
  void add_peak_of_plain() {
    const TimelineMoment& peak = plain_.moments[plain_.peak_moment()];
    const double at_x = x(peak.begin_seconds), at_y = y(static_cast<double>(peak.parts.total()));
    const std::string text = "plain: " + format_bytes(plain_peak_bytes_);
    const double width = text_width(text);
    for (const double up : {at_y - 5, at_y + 10}) {
      for (const double from : {at_x - width / 2, at_x + 14, at_x - 14 - width}) {
        if (from + width > kRight || !add_free_text(from, up, text)) continue;
        return;
      }
    }
  }

  /// Whether there is room for it.
  bool label_within(size_t part) {
    const std::string text = kParts[part].label;
    const double width = text_width(text);
    const auto place = room_in(part, width);
    if (!place) return false;
    add_text(place->first, place->second + 4.5, "middle", text,
             " style=\"fill:" + std::string(kParts[part].ink) + "\"");
    taken_.push_back(text_box(place->first - width / 2, place->second + 4.5, width));
    return true;
  }

  /// Above all, with a line to where the part is thickest. False where it would touch something.
  bool label_above(size_t part) {
    const std::string text = kParts[part].label;
    const double width = text_width(text);
    const TimelineMoment& moment = *columns_[thickest(part)];
    const double from_x = column_x(thickest(part)) + 1;
    const double from_y = y((below(moment, part) + below(moment, part + 1)) / 2);
    for (const bool left : {false, true}) {
      const double begin = left ? from_x - 10 - width : from_x + 10;
      if (begin < kLeft || begin + width > kRight) continue;
      const double lowest = y(static_cast<double>(highest_around(text_box(begin, 0, width)))) - 12;
      for (double text_y = lowest; text_y >= kTop; text_y -= 3) {
        const Box lead{from_x - 2, text_y - 4, from_x + 2, from_y};
        if (meets_any(taken_, lead) || !add_free_text(begin, text_y, text, left)) continue;
        add_line("lead", from_x, from_y, from_x, text_y - 4);
        add_line("lead", from_x, text_y - 4, left ? begin + width + 3 : begin - 3, text_y - 4);
        lines_.push_back(lead);
        return true;
      }
    }
    return false;
  }

  /// In a row below the picture, with their colours.
  void add_legend() {
    double at = kLeft;
    const double text_y = kHeight + 8;
    for (const size_t part : legend_) {
      out_ += "<rect x=\"" + support::svg_number(at) + "\" y=\"" + support::svg_number(text_y - 10) +
              "\" width=\"11\" height=\"11\" fill=\"" + kParts[part].color + "\"/>\n";
      add_text(at + 15, text_y, "start", kParts[part].label);
      at += 15 + text_width(kParts[part].label) + 8;
    }
  }

  /// Nothing, and false, where the text would touch another or a line.
  bool add_free_text(double from, double text_y, const std::string& text, bool to_the_left = false) {
    const double width = text_width(text);
    const Box box = text_box(from, text_y, width);
    if (meets_any(taken_, box) || meets_any(lines_, box) || is_crossed(box)) return false;
    taken_.push_back(box);
    add_text(to_the_left ? from + width : from, text_y, to_the_left ? "end" : "start", text);
    return true;
  }

  static bool meets_any(const std::vector<Box>& boxes, const Box& box) {
    return std::ranges::any_of(boxes, [&](const Box& other) { return box.meets(other); });
  }

  /// By the outline of plain.
  bool is_crossed(const Box& box) const {
    double before = kBottom;
    for (size_t c = 0; c < plain_columns_.size() && plain_columns_[c] != nullptr; ++c) {
      const double at = y(static_cast<double>(plain_columns_[c]->parts.total()));
      const bool beside = column_x(c + 1) >= box.left && column_x(c) <= box.right;
      if (beside && std::min(at, before) < box.bottom && std::max(at, before) > box.top) return true;
      before = at;
    }
    return false;
  }

  static Box text_box(double from, double text_y, double width) {
    return {from, text_y - kTextHeight, from + width, text_y + 4};
  }

  static double text_width(const std::string& text) { return kLetterWidth * static_cast<double>(text.size()); }

  /// The first column in which the part has the most bytes.
  size_t thickest(size_t part) const {
    size_t best = 0;
    for (size_t c = 0; c < columns_.size() && columns_[c] != nullptr; ++c) {
      if (columns_[c]->parts.*kParts[part].bytes > columns_[best]->parts.*kParts[part].bytes) best = c;
    }
    return best;
  }

  /// The most that is alive below a text.
  int64_t highest_around(const Box& box) const {
    int64_t most = 0;
    for (size_t c = 0; c < columns_.size() && columns_[c] != nullptr; ++c) {
      if (column_x(c) >= box.left - 6 && column_x(c) <= box.right + 6) {
        most = std::max(most, columns_[c]->parts.total());
      }
    }
    return most;
  }

  /// The middle of a place in the part where a text of that width fits, if there is one: near the peak, so that texts
  /// stand below each other, but where the part is hardly thinner than anywhere.
  std::optional<std::pair<double, double>> room_in(size_t part, double width) const {
    const auto span = static_cast<size_t>(std::ceil((width + 12) / ((kRight - kLeft) / kColumns)));
    struct Place {
      double x, y, height;
    };
    std::vector<Place> places;
    double most = 0;
    for (size_t c = 0; c + span < columns_.size() && columns_[c + span] != nullptr; ++c) {
      double low = kBottom, high = 0;  // as the screen has it: the lower edge is the larger number
      for (size_t i = c; i <= c + span; ++i) {
        low = std::min(low, y(below(*columns_[i], part)));
        high = std::max(high, y(below(*columns_[i], part + 1)));
      }
      if (low - high <= kLineHeight + 1) continue;
      places.push_back({(column_x(c) + column_x(c + span)) / 2, (low + high) / 2, low - high});
      most = std::max(most, low - high);
    }
    std::erase_if(places, [&](const Place& place) { return place.height < 0.9 * most; });
    if (places.empty()) return std::nullopt;
    const double peak = x(step_.moments[step_.peak_moment()].begin_seconds);
    const Place best = *std::ranges::min_element(places, {}, [&](const Place& p) { return std::abs(p.x - peak); });
    return std::pair{best.x, best.y};
  }

  const Timeline plain_, step_;
  const int64_t baseline_bytes_;
  const int64_t plain_peak_bytes_;  ///< as measured, where it was: the recorded step has what replays begin with, too
  int64_t budget_;                  ///< 0: none to be shown
  const bool has_plan_;
  const double seconds_;
  double most_ = 1, top_bytes_ = 1;
  std::vector<const TimelineMoment*> columns_, plain_columns_;
  std::vector<Box> taken_;      ///< by texts, which neither texts nor lines to labels may touch
  std::vector<Box> lines_;      ///< that texts may not touch
  std::vector<size_t> legend_;  ///< parts that have no room for a label
  std::string out_;
};

}  // namespace

std::string to_svg(const Run& run) {
  if (const std::string wrong = run.problem(); !wrong.empty())
    throw Error("[run] " + wrong + "; record the step again");
  return Picture(run).draw();
}

}  // namespace remat
