// What a Fit says, for people and as JSON.
#include <remat/fit.h>

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include <remat/budget.h>

#include <remat/support/number_text.h>

namespace remat {
namespace {

using nlohmann::json;

constexpr double kManyPercent = 100;  ///< more than so many is told as times

std::string step_seconds_text(double seconds) {
  return seconds < 0.0995 ? support::short_text(1000 * seconds, 3) + " ms" : support::short_text(seconds, 3) + " s";
}

std::string times_text(double times) { return support::fixed_text(times, times < 9.95 ? 1 : 0) + " times as large"; }

/// "12.3 % less", "71.9 % more", "5.6 times as much".
std::string loss_text(double percent) {
  if (percent <= -kManyPercent) return support::fixed_text(1 - percent / 100, 1) + " times as much";
  return support::fixed_text(std::abs(percent), 1) + " % " + (percent >= 0 ? "less" : "more");
}

std::string speed_text(const Fit& fit, const FitPoint& point) {
  return loss_text(fit.loss_percent(point)) + " a second";
}

/// "from 37.5 % less to 71.9 % more a second".
std::string speeds_text(const FitPoint& point) {
  return "from " + loss_text(point.most_loss_percent) + " to " + loss_text(point.least_loss_percent) + " a second";
}

std::string row(const std::string& name, const std::string& size, const std::string& peak, const std::string& time,
                const std::string& rate, const std::string& note) {
  char text[256];
  std::snprintf(text, sizeof text, "%-22s %8s %12s %12s %12s  %s", name.c_str(), size.c_str(), peak.c_str(),
                time.c_str(), rate.c_str(), note.c_str());
  std::string line = text;
  return line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
}

std::string row(const std::string& name, const std::optional<FitPoint>& point) {
  if (!point) return row(name, "none", "", "", "", "");
  return row(name, std::to_string(point->size), format_bytes(point->peak_bytes), step_seconds_text(point->seconds),
             support::short_text(point->per_second(), 4), point->measured ? "" : "predicted");
}

/// Why times do not tell: in seconds, plain's largest and the other.
std::string varying_text(const Fit& fit, const FitPoint& point) {
  const auto step = [](const FitPoint& each) {
    return "a step of " + std::to_string(each.size) + " took " + step_seconds_text(each.seconds) + " to " +
           step_seconds_text(each.usual_seconds);
  };
  return "Without remat " + step(*fit.plain) + ", with it " + step(point) +
         ". Ask again when the machine does less beside.\n";
}

/// Of the largest that is worth it, where a larger one fits too.
std::string up_to_text(const Fit& fit) {
  return "Up to " + std::to_string(fit.worthwhile->size) + " (" + times_text(fit.times_plain(*fit.worthwhile)) +
         ") it is worth it: " + speed_text(fit, *fit.worthwhile);
}

std::string worth_text(const Fit& fit) {
  const std::string share = support::short_text(fit.most_loss_percent) + " %";
  switch (fit.verdict) {
    case FitVerdict::kNone:
      return "";
    case FitVerdict::kWorthIt:
      return fit.loss_percent(fit.largest) <= 0
                 ? "It is worth it: no less is handled in a second than without remat.\n"
                 : "It is worth it: at most " + share + " less is handled in a second than without remat.\n";
    case FitVerdict::kUpToASize:
      return up_to_text(fit) + "; beyond, more than " + share + " less.\n";
    case FitVerdict::kNotWorthIt:
      return "It is not worth its time: with every larger " + fit.what + " more than " + share +
             " less is handled in a second. Take one only where training needs it.\n";
    case FitVerdict::kCannotTell:
      if (fit.worthwhile->size > fit.plain->size) {
        return up_to_text(fit) + "; beyond, times vary too much to tell. " + varying_text(fit, fit.largest);
      }
      return "Times vary too much to tell whether a larger " + fit.what + " is worth it. " +
             varying_text(fit, fit.largest);
  }
  return "";
}

std::string verdict(const Fit& fit) {
  const std::string budget = "within " + format_bytes(fit.budget_bytes);
  const auto largest = std::to_string(fit.largest.size);
  if (!fit.plain) return "No " + fit.what + " fits " + budget + " without remat; with it, up to " + largest + " do.\n";
  if (fit.largest.size == fit.plain->size) {
    return "The " + fit.what + " is as large without remat: " + largest +
           ". More budget, or a longer list of sizes, would show more.\n";
  }
  const bool varies = fit.verdict == FitVerdict::kCannotTell && fit.largest.least_loss_percent < fit.most_loss_percent;
  return "With remat the " + fit.what + " can be " + times_text(fit.times_plain(fit.largest)) + ": " + largest +
         " in place of " + std::to_string(fit.plain->size) + ", " +
         (varies ? speeds_text(fit.largest) : "at " + speed_text(fit, fit.largest)) + ".\n" + worth_text(fit);
}

std::string split_text(const Fit& fit) {
  const FitSplit& split = *fit.split;
  const std::string whole = "A " + fit.what + " of " + std::to_string(split.steps * split.step.size),
                    how = (split.steps == 1
                               ? "in one step"
                               : "as " + std::to_string(split.steps) + " steps of " + std::to_string(split.step.size)) +
                          (split.plain ? ", without remat" : ", with remat"),
                    seconds = step_seconds_text(split.seconds());
  if (split.clear) return whole + " is fastest " + how + ": " + seconds + ".\n";
  return whole + " takes " + seconds + " " + how + "; times vary too much to tell that no other split is faster.\n";
}

const char* name_of(FitVerdict verdict) {
  switch (verdict) {
    case FitVerdict::kNone:
      break;
    case FitVerdict::kWorthIt:
      return "worth it";
    case FitVerdict::kUpToASize:
      return "worth it up to a size";
    case FitVerdict::kNotWorthIt:
      return "not worth it";
    case FitVerdict::kCannotTell:
      return "cannot tell";
  }
  return nullptr;
}

json point_json(const std::optional<FitPoint>& point) {
  if (!point) return nullptr;
  return {{"size", point->size},
          {"peak_bytes", point->peak_bytes},
          {"seconds", point->seconds},
          {"measured", point->measured},
          {"usual_seconds", point->usual_seconds},
          {"least_loss_percent", point->least_loss_percent},
          {"most_loss_percent", point->most_loss_percent}};
}

json split_json(const std::optional<FitSplit>& split) {
  if (!split) return nullptr;
  return {{"step", point_json(split->step)}, {"steps", split->steps},
          {"plain", split->plain},           {"seconds", split->seconds()},
          {"clear", split->clear},           {"plan", split->plan ? json::parse(to_json(*split->plan)) : json()}};
}

const char* name_of(FitMode mode) {
  return mode == FitMode::kRecord ? "record" : mode == FitMode::kPlain ? "plain" : "remat";
}

}  // namespace

std::string to_text(const Fit& fit) {
  std::string text = row("", fit.what, "peak", "a step", fit.what + "/s", "");
  text += row("plain, largest", fit.plain);
  if (fit.worthwhile && fit.worthwhile->size != fit.largest.size && fit.worthwhile->size != fit.plain->size) {
    text += row("remat, at most " + support::short_text(fit.most_loss_percent) + " %", fit.worthwhile);
  }
  text += row("remat, largest", fit.largest) + '\n' + verdict(fit);
  if (fit.split) text += split_text(fit);
  return text;
}

std::string to_json(const Fit& fit) {
  json runs = json::array();
  for (const FitRun& run : fit.runs) {
    runs.push_back({{"size", run.size}, {"mode", name_of(run.mode)}, {"fits", run.fits}});
  }
  const json result = {{"what", fit.what},
                       {"budget_bytes", fit.budget_bytes},
                       {"most_loss_percent", fit.most_loss_percent},
                       {"plain", point_json(fit.plain)},
                       {"largest", point_json(fit.largest)},
                       {"worthwhile", point_json(fit.worthwhile)},
                       {"verdict", name_of(fit.verdict) == nullptr ? json() : json(name_of(fit.verdict))},
                       {"split", split_json(fit.split)},
                       {"predicted_plain", fit.predicted_plain},
                       {"predicted_largest", fit.predicted_largest},
                       {"smallest_budget_bytes", fit.smallest_budget_bytes},
                       {"same_operators", fit.same_operators},
                       {"runs", std::move(runs)}};
  return result.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace remat
