#include "cli/rank_place.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

#include <remat/error.h>

namespace remat::cli {
namespace {

int number(const char* name, const char* text) {
  int value = -1;
  const char* const end = text + std::strlen(text);
  if (std::from_chars(text, end, value).ptr != end || value < 0) {
    throw Error("[ranks] the environment variable " + std::string(name) + " is \"" + text +
                "\"; start the processes by torchrun, or unset it");
  }
  return value;
}

}  // namespace

std::optional<RankPlace> place_from_environment() {
  const char* const rank = std::getenv("RANK");
  const char* const size = std::getenv("WORLD_SIZE");
  if (rank == nullptr || size == nullptr) return std::nullopt;
  const RankPlace place{.rank = number("RANK", rank), .size = number("WORLD_SIZE", size), .file = {}};
  if (place.rank >= place.size) {
    throw Error("[ranks] RANK is " + std::string(rank) + " of WORLD_SIZE " + size +
                "; start the processes by torchrun, or unset both");
  }
  if (place.size == 1) return std::nullopt;
  const char* const address = std::getenv("MASTER_ADDR");
  const char* const port_text = std::getenv("MASTER_PORT");
  if (address == nullptr || port_text == nullptr) {
    throw Error(
        "[ranks] RANK and WORLD_SIZE are set, but not MASTER_ADDR and MASTER_PORT; start the processes by torchrun");
  }
  if (*address == 0) {
    throw Error("[ranks] the environment variable MASTER_ADDR is empty; give it the machine of rank 0");
  }
  if (const int port = number("MASTER_PORT", port_text); port == 0 || port > 65535) {
    throw Error("[ranks] the environment variable MASTER_PORT is " + std::to_string(port) +
                "; give it the number of a port, 1 to 65535");
  }
  return place;
}

}  // namespace remat::cli
