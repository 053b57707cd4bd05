#include "cli/printable.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>

#include <sys/mman.h>

namespace remat::cli {
namespace {

bool prints_notices = true;
/// In memory of several processes.
struct SharedFailures {
  std::atomic_flag printed;      ///< a failure
  std::atomic_flag has_apart;    ///< the next
  std::array<char, 2048> apart;  ///< the first text of ranks that fell apart, which is printed where there is no other
};
SharedFailures* shared = nullptr;

uint8_t byte_at(std::string_view text, size_t at) { return static_cast<uint8_t>(text[at]); }

/// Bytes of the character that begins at `at`; 0 where none does.
size_t character_bytes(std::string_view text, size_t at) {
  const uint8_t lead = byte_at(text, at);
  if (lead < 0x80) return 1;
  const size_t bytes = lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
  if (at + bytes > text.size()) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte_at(text, at + i) & 0xC0U) != 0x80U) return 0;
  }
  return bytes;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = character_bytes(text, at);
    const uint8_t first = byte_at(text, at);
    const bool control = first < 0x20 || first == 0x7F;
    const bool c1 = bytes == 2 && first == 0xC2 && byte_at(text, at + 1) < 0xA0;
    if (first == '\n') {
      result += "\\n";
    } else if (control || c1 || bytes == 0) {
      char digits[8];
      std::snprintf(digits, sizeof digits, "\\x%02x", c1 ? byte_at(text, at + 1) : first);
      result += digits;
    } else {
      result += text.substr(at, bytes);
    }
    at += bytes == 0 ? 1 : bytes;
  }
  return result;
}

void print_notice(const std::string& text, bool in_progress) {
  if (prints_notices) std::fprintf(stderr, "%sremat: %s\n", in_progress ? "\n" : "", printable(text).c_str());
}

void print_failure(const std::string& text) {
  if (shared != nullptr && text.starts_with("[ranks]")) {  // mostly what follows from another rank's failure
    const bool lost = text.find("connection to another process is lost") != std::string::npos;
    if (!lost && !shared->has_apart.test_and_set())
      std::snprintf(shared->apart.data(), shared->apart.size(), "%s", text.c_str());
    return;
  }
  if (shared != nullptr && shared->printed.test_and_set()) return;
  std::fflush(stdout);
  std::fprintf(stderr, "remat: %s\n", printable(text).c_str());
}

void share_failures() {
  void* const memory = mmap(nullptr, sizeof(SharedFailures), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory != MAP_FAILED) shared = new (memory) SharedFailures();
}

std::string why_ranks_fell_apart() { return shared == nullptr ? "" : shared->apart.data(); }

void leave_printing_to_rank_0() {
  prints_notices = false;
  if (std::freopen("/dev/null", "w", stdout) == nullptr) std::fclose(stdout);
}

}  // namespace remat::cli
