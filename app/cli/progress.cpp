#include "cli/progress.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <string_view>
#include <vector>

#include <sys/ioctl.h>
#include <unistd.h>

#include <remat/budget.h>

#include "cli/special_file.h"
#include "cli/table.h"

namespace remat::cli {
namespace {

constexpr int kLongestBar = 30;
constexpr int kShortestBar = 8;

// NO_COLOR: https://no-color.org, any value but the empty one.
bool set_in_environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

std::string memory_text(const ProgressState& state) {
  auto text = "peak " + format_bytes(state.peak_bytes);
  if (state.budget_bytes) text += " of " + format_bytes(*state.budget_bytes);
  return text;
}

std::string step_text(const ProgressState& state) {
  const auto steps = std::to_string(state.steps), step = std::to_string(state.step);
  return state.label + " " + std::string(steps.size() - std::min(steps.size(), step.size()), ' ') + step + "/" + steps;
}

std::string speed_text(const ProgressState& state) {
  if (state.times_plain) return format_number(*state.times_plain, 2) + " x plain's time";
  return format_count(std::llround(state.items_per_second)) + " " + state.item_name + "/s";
}

bool is_terminal(std::FILE* out) {
  const char* kind = std::getenv("TERM");
  return isatty(fileno(out)) != 0 && kind != nullptr && std::string_view(kind) != "dumb";
}

std::string paint(const std::string& text, const char* code, bool color) {
  return color ? "\x1b[" + std::string(code) + "m" + text + "\x1b[0m" : text;
}

}  // namespace

int terminal_width(std::FILE* out) {
  winsize size = {};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  if (const char* columns = std::getenv("COLUMNS"); columns != nullptr && std::atoi(columns) > 0)
    return std::atoi(columns);
  return 80;
}

std::string progress_bar(const ProgressState& state, int width, bool color) {
  struct Part {
    std::string text;
    int importance;
    const char* code;
  };
  const std::vector<Part> parts = {{"loss " + format_number(state.loss, 4), 5, "1"},
                                   {speed_text(state), 2, "0"},
                                   {memory_text(state), 4, "36"},
                                   {"now " + format_bytes(state.current_bytes), 1, "0"},
                                   {format_clock(state.seconds_left) + " left", 3, "0"}};
  const auto head = step_text(state);
  auto room = width - static_cast<int>(head.size());
  // From the most important on; the first that does not fit ends it, so that a part never replaces a greater one.
  int least = 6;
  for (int importance = 5; importance >= 1; --importance) {
    const auto& part = *std::ranges::find(parts, importance, &Part::importance);
    const int need = static_cast<int>(part.text.size()) + 2;
    if (need > room) break;
    room -= need;
    least = importance;
  }
  auto line = head.substr(0, static_cast<size_t>(std::max(width, 0)));
  if (room >= kShortestBar + 3) {
    const int length = std::min(kLongestBar, room - 3);
    const auto done = state.steps > 0 ? static_cast<int>(length * state.step / state.steps) : 0;
    const auto full = static_cast<size_t>(std::clamp(done, 0, length));
    line +=
        " [" + paint(std::string(full, '='), "32", color) + std::string(static_cast<size_t>(length) - full, ' ') + "]";
  }
  for (const auto& part : parts) {
    if (part.importance >= least) line += "  " + paint(part.text, part.code, color);
  }
  return line;
}

std::string progress_line(const ProgressState& state) {
  return step_text(state) + "  loss " + format_number(state.loss, 6) + "  " + speed_text(state) + "  " +
         memory_text(state) + ", now " + format_bytes(state.current_bytes) + "  " + format_clock(state.seconds_left) +
         " left";
}

Progress::Progress(std::FILE* out)
    : out_(out), terminal_(is_terminal(out)), color_(terminal_ && !set_in_environment("NO_COLOR")) {}

Progress::~Progress() { finish(); }

void Progress::show(const ProgressState& state) {
  // A pipe that nobody empties must not keep a signal from ending the run.
  if (!wait_until_writable(fileno(out_)) && errno == ETIMEDOUT) return;
  if (terminal_) {
    // The last column stays free: some terminals wrap a line that fills it.
    std::fprintf(out_, "\r%s\x1b[K", progress_bar(state, terminal_width(out_) - 1, color_).c_str());
  } else {
    std::fprintf(out_, "%s\n", progress_line(state).c_str());
  }
  std::fflush(out_);
  drawn_ = true;
}

void Progress::finish() {
  if (terminal_ && drawn_) std::fputs("\n", out_);
  std::fflush(out_);
  drawn_ = false;
}

}  // namespace remat::cli
