#include <remat/rounds.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace remat {
namespace {

constexpr size_t kWarm = 2, kFewSteps = 5, kMostSteps = 64;
constexpr double kSecondsOfFew = 0.5, kSecondsOfMost = 0.05;

double least_of(const std::vector<double>& seconds) { return *std::ranges::min_element(seconds); }

/// What steps of `times` take in a usual round, and what they take in such rows as one of `others`.
double slow(const RoundTimes& times, const RoundTimes& others) {
  return std::max(times.usual(), times.mean_over(others.least(), others.steps()));
}

}  // namespace

std::vector<double> time_round(const std::function<double()>& step) {
  std::vector<double> seconds;
  double sum = 0;
  const auto wants_more = [&] {
    const size_t count = seconds.size();
    return count == 0 || (count < kFewSteps && sum < kSecondsOfFew) || (count < kMostSteps && sum < kSecondsOfMost);
  };
  while (wants_more()) {
    seconds.push_back(step());
    sum += seconds.back();
  }
  if (seconds.size() > kWarm) seconds.erase(seconds.begin());
  return seconds;
}

void RoundTimes::add_round(const std::vector<double>& seconds) {
  std::vector<double> round;
  std::ranges::copy_if(seconds, std::back_inserter(round), [](double each) { return each > 0; });
  if (!round.empty()) rounds_.push_back(std::move(round));
}

double RoundTimes::least() const {
  if (rounds_.empty()) return 0;
  double least = std::numeric_limits<double>::infinity();
  for (const auto& round : rounds_) least = std::min(least, least_of(round));
  return least;
}

double RoundTimes::usual() const {
  if (rounds_.empty()) return 0;
  std::vector<double> leasts;
  leasts.reserve(rounds_.size());
  for (const auto& round : rounds_) leasts.push_back(least_of(round));
  std::ranges::sort(leasts);
  return leasts[leasts.size() / 2];
}

size_t RoundTimes::steps() const {
  size_t steps = 0;
  for (const auto& round : rounds_) steps += round.size();
  return steps;
}

double RoundTimes::mean_over(double seconds, size_t tries) const {
  if (rounds_.empty()) return 0;
  std::vector<double> means;
  for (const auto& round : rounds_) {
    for (size_t begin = 0; begin < round.size();) {
      double sum = 0;
      size_t end = begin;
      while (end < round.size() && (end == begin || sum < seconds)) sum += round[end++];
      // What is left at the end of a round is too short.
      if (begin == 0 || sum >= seconds) means.push_back(sum / static_cast<double>(end - begin));
      begin = end;
    }
  }
  std::ranges::sort(means);
  // The least of n lies, on average, where 1 of n + 1 parts are less; twice that to be on the safe side.
  return means[std::min(means.size() - 1, 2 * means.size() / (tries + 1))];
}

TimesRatio ratio_of(const RoundTimes& times, const RoundTimes& others) {
  const double own = times.least(), other = others.least();
  if (own <= 0 || other <= 0) return {};
  return {.told = own / other, .least = own / slow(others, times), .most = slow(times, others) / other};
}

}  // namespace remat
