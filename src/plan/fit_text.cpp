// What a Fit says, for people and as JSON.
#include <remat/fit.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include <nlohmann/json.hpp>

#include <remat/budget.h>

namespace remat {
namespace {

using nlohmann::json;

std::string number(double value, const char* format) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string seconds_text(double seconds) {
  return seconds < 0.0995 ? number(1000 * seconds, "%.3g ms") : number(seconds, "%.3g s");
}

std::string times_text(double times) { return number(times, times < 9.95 ? "%.1f" : "%.0f") + " times as large"; }

std::string speed_text(const Fit& fit, const FitPoint& point) {
  const double loss = fit.loss_percent(point);
  return number(std::abs(loss), "%.1f") + " % " + (loss >= 0 ? "less" : "more") + " a second";
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
  return row(name, std::to_string(point->size), format_bytes(point->peak_bytes), seconds_text(point->seconds),
             number(point->per_second(), "%.4g"), point->measured ? "" : "predicted");
}

std::string verdict(const Fit& fit) {
  const std::string budget = "within " + format_bytes(fit.budget_bytes),
                    share = number(fit.most_loss_percent, "%g") + " %";
  const auto largest = std::to_string(fit.largest.size);
  if (!fit.plain) return "No " + fit.what + " fits " + budget + " without remat; with it, up to " + largest + " do.\n";
  if (fit.largest.size == fit.plain->size) {
    return "The " + fit.what + " is as large without remat: " + largest +
           ". More budget, or a longer list of sizes, would show more.\n";
  }
  std::string text = "With remat the " + fit.what + " can be " + times_text(fit.times_plain(fit.largest)) + ": " +
                     largest + " in place of " + std::to_string(fit.plain->size) + ", at " +
                     speed_text(fit, fit.largest) + ".\n";
  if (!fit.worthwhile) return text;
  const FitPoint& worth = *fit.worthwhile;
  if (worth.size == fit.largest.size) return text + "It is worth it: that is within " + share + ".\n";
  if (worth.size > fit.plain->size) {
    return text + "Up to " + std::to_string(worth.size) + " (" + times_text(fit.times_plain(worth)) +
           ") it is worth it: " + speed_text(fit, worth) + "; beyond, it costs more than " + share + ".\n";
  }
  return text + "It is not worth its time: every larger " + fit.what + " costs more than " + share +
         ". Take one only where training needs it.\n";
}

std::string split_text(const Fit& fit) {
  const FitSplit& split = *fit.split;
  const auto whole = std::to_string(split.steps * split.step.size);
  const std::string how = split.plain ? "without remat" : "with remat";
  if (split.steps == 1) {
    return "A " + fit.what + " of " + whole + " is fastest in one step, " + how + ": " + seconds_text(split.seconds()) +
           ".\n";
  }
  return "A " + fit.what + " of " + whole + " is fastest as " + std::to_string(split.steps) + " steps of " +
         std::to_string(split.step.size) + ", " + how + ": " + seconds_text(split.seconds()) + ".\n";
}

json point_json(const std::optional<FitPoint>& point) {
  if (!point) return nullptr;
  return {{"size", point->size},
          {"peak_bytes", point->peak_bytes},
          {"seconds", point->seconds},
          {"measured", point->measured}};
}

json split_json(const std::optional<FitSplit>& split) {
  if (!split) return nullptr;
  return {{"step", point_json(split->step)},
          {"steps", split->steps},
          {"plain", split->plain},
          {"seconds", split->seconds()},
          {"plan", split->plan ? json::parse(to_json(*split->plan)) : json()}};
}

const char* name_of(FitMode mode) {
  return mode == FitMode::kRecord ? "record" : mode == FitMode::kPlain ? "plain" : "remat";
}

}  // namespace

std::string to_text(const Fit& fit) {
  std::string text = row("", fit.what, "peak", "a step", fit.what + "/s", "");
  text += row("plain, largest", fit.plain);
  if (fit.worthwhile && fit.worthwhile->size != fit.largest.size && fit.worthwhile->size != fit.plain->size) {
    text += row("remat, at most " + number(fit.most_loss_percent, "%g") + " %", fit.worthwhile);
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
                       {"split", split_json(fit.split)},
                       {"predicted_plain", fit.predicted_plain},
                       {"predicted_largest", fit.predicted_largest},
                       {"smallest_budget_bytes", fit.smallest_budget_bytes},
                       {"same_operators", fit.same_operators},
                       {"runs", std::move(runs)}};
  return result.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace remat
