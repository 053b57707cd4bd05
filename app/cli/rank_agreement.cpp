#include "cli/rank_agreement.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include <remat/error.h>

#include "cli/settings.h"
#include "cli/step_message.h"

namespace remat::cli {

namespace {

using nlohmann::json;

}  // namespace

void check_same_options(RankGroup& ranks, const json& options) {
  // Bytes of a path that are no UTF-8 may stand in them.
  const std::string mine = options.dump(-1, ' ', false, json::error_handler_t::replace);
  const auto all = ranks.gather_text(mine);
  if (mine != all[0]) {
    throw Error("[ranks] rank 0 was started with " + differences(json::parse(all[0]), json::parse(mine)) +
                "; give rank " + std::to_string(ranks.rank()) + " the same options and data");
  }
  if (std::ranges::count(all, mine) != ranks.size()) {
    throw Error("[ranks] another process was started with other options or data; its own message says with which");
  }
}

void check_same_training(RankGroup& ranks, const TrainSettings& settings, const std::string& data,
                         const std::string& held_out) {
  auto same = decisive(settings);
  same.update({{"steps", settings.steps},
               {"plain", settings.plain},
               {"budget", settings.budget},
               {"planner", settings.planner},
               {"head", settings.head},
               {"optimizer-in-backward", settings.optimizer_in_backward},
               {"eval", held_out},
               {"checkpoint", settings.checkpoint},
               {"checkpoint-every", settings.checkpoint_every},
               {"resume", settings.resume},
               {"save-hf", settings.save_model},
               {"save-adapter", settings.save_adapter},
               {"data", data}});
  check_same_options(ranks, same);
}

StepResult joined_result(RankGroup& ranks, StepResult own) {
  const auto all =
      ranks.gather({std::bit_cast<int32_t>(own.loss), std::bit_cast<int64_t>(own.seconds), own.peak_bytes});
  float loss = 0;
  double seconds = 0;
  std::vector<int64_t> peaks;
  for (const auto& each : all) {
    loss += std::bit_cast<float>(static_cast<int32_t>(each[0]));
    seconds = std::max(seconds, std::bit_cast<double>(each[1]));
    peaks.push_back(each[2]);
  }
  const auto highest = static_cast<int>(std::ranges::max_element(peaks) - peaks.begin());
  if (highest != 0 && ranks.rank() == highest) {
    const std::string message = step_message(own);
    ranks.send({message.begin(), message.end()});
  } else if (highest != 0 && ranks.rank() == 0) {
    const auto message = ranks.receive(highest);
    own = read_step_message({message.begin(), message.end()});
  }
  own.loss = loss / static_cast<float>(ranks.size());
  own.seconds = seconds;
  own.peak_bytes = peaks[static_cast<size_t>(highest)];
  own.rank_peak_bytes = std::move(peaks);
  return own;
}

void throw_largest_refusal(RankGroup& ranks, bool sound) {
  std::string largest;
  int64_t most = -1;
  for (const std::string& message : ranks.gather_text(error_message(std::current_exception()))) {
    const auto refusal = json::parse(message);
    // A session that tells of another rank's refusal has its numbers, but not its words.
    const bool is_own = !refusal.at("message").get<std::string>().starts_with("[ranks]");
    const int64_t needed = is_own ? refusal.at("needed_bytes").get<int64_t>() : 0;
    if (needed > most) largest = message;
    most = std::max(most, needed);
  }
  const auto all = ranks.gather({sound ? 1 : 0});
  ranks.set_apart(std::ranges::any_of(all, [](const auto& numbers) { return numbers[0] == 0; }));
  throw_if_error(largest);
  throw InternalError("[ranks] a refusal has no message");
}

}  // namespace remat::cli
