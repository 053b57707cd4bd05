#include "cli/rank_meeting.h"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

#include <c10/util/Logging.h>

#include <remat/error.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "cli/printable.h"

namespace remat::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Store = c10::intrusive_ptr<c10d::Store>;
using namespace std::chrono_literals;

constexpr auto kLook = 50ms;        // between looks at the store
constexpr auto kQuiet = 10s;        // what is waited for longer is said
constexpr auto kSilent = 5s;        // a process that waits and is not heard of for so long has ended
constexpr auto kPatience = 30min;   // as long as c10d's own groups wait
constexpr auto kConnecting = 5min;  // as long as c10d's own stores try
constexpr auto kGrace = 10s;        // for the others to hear of a failure

// Keys.
constexpr const char* kSize = "remat/size";                                        // WORLD_SIZE of whoever came first
constexpr const char* kAll = "remat/all";                                          // rank 0 has seen all
constexpr const char* kFailed = "remat/failed";                                    // why one cannot begin
constexpr const char* kHeard = "remat/heard";                                      // how many know of that
std::string beats(size_t rank) { return "remat/beats/" + std::to_string(rank); }   // looks of one that waits
std::string process(int rank) { return "remat/process/" + std::to_string(rank); }  // which one that is

/// What this process has of the meeting.
struct Meeting {
  Store store;
  bool serves = false;  ///< the store is in this process, and ends with it
  bool over = false;    ///< all were ready, or one has failed
};

Meeting& meeting() {
  static Meeting the_meeting;
  return the_meeting;
}

/// Of an environment variable, which place_from_environment() has found.
std::string found(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}
std::string address_text() { return found("MASTER_ADDR") + ":" + found("MASTER_PORT"); }

/// One attempt.
void connect(const RankPlace& place, std::chrono::milliseconds timeout) {
  // c10d prints a stack for each connection that fails; what matters of it is in our messages.
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  // torchrun keeps the store itself, and says so.
  const char* const kept = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(std::strtoul(found("MASTER_PORT").c_str(), nullptr, 10));
  options.isServer = place.rank == 0 && (kept == nullptr || std::string(kept) != "True");
  options.timeout = timeout;
  // A store that outlives a restart has the keys of those that met before.
  const char* const restart = std::getenv("TORCHELASTIC_RESTART_COUNT");
  try {
    auto store = c10::make_intrusive<c10d::TCPStore>(found("MASTER_ADDR"), options);
    store->setTimeout(kPatience);
    meeting() = {.store = c10::make_intrusive<c10d::PrefixStore>(restart == nullptr ? "0" : restart, std::move(store)),
                 .serves = options.isServer};
  } catch (const std::exception& error) {
    if (options.isServer) {
      throw Error("[ranks] rank 0 cannot listen at " + address_text() +
                  "; give MASTER_ADDR the name of its machine, and MASTER_PORT the number of a free port");
    }
    throw Error("[ranks] rank " + std::to_string(place.rank) + " cannot reach rank 0 at " + address_text() +
                "; start rank 0 there, with the same MASTER_ADDR and MASTER_PORT");
  }
}

// The store stays until the others know of the failure.
void leave(const RankPlace& place) {
  Meeting& own = meeting();
  own.over = true;
  own.store->add(kHeard, 1);
  const auto end = Clock::now() + kGrace;
  while (own.serves && own.store->add(kHeard, 0) < place.size && Clock::now() < end) std::this_thread::sleep_for(kLook);
}

/// How far another process had counted, and when it went on.
struct Seen {
  int64_t beats = 0;
  Clock::time_point last;
};

/// How many of the processes rank 0 waits for. Throws Error where one was there, and is not heard of any more.
int count_missing(c10d::Store& store, std::vector<Seen>& others) {
  int missing = 0;
  const auto now = Clock::now();
  for (size_t rank = 1; rank < others.size(); ++rank) {
    Seen& one = others[rank];
    if (const int64_t count = store.add(beats(rank), 0); count != one.beats) one = {count, now};
    if (one.beats == 0 || now - one.last > 10 * kLook) ++missing;  // of one that came: maybe
    if (one.beats != 0 && now - one.last > kSilent) {
      throw Error("[ranks] rank " + std::to_string(rank) +
                  " has ended, or has stopped, before all were there; start all again");
    }
  }
  return missing;
}

void wait_in_store(const RankPlace& place, c10d::Store& store) {
  const std::string own = std::to_string(getpid()) + " " + std::to_string(Clock::now().time_since_epoch().count());
  store.set(process(place.rank), own);
  std::vector<Seen> others(static_cast<size_t>(place.size));
  bool told = false;
  for (const auto start = Clock::now();; std::this_thread::sleep_for(kLook)) {
    if (store.check({kFailed})) {
      const std::string reason = store.get_to_str(kFailed);
      leave(place);
      throw Error("[ranks] " + reason);
    }
    if (store.get_to_str(process(place.rank)) != own) {
      throw Error("[ranks] two processes have RANK " + std::to_string(place.rank) + "; give each its own");
    }
    std::string which = "other";
    if (place.rank > 0) {
      store.add(beats(static_cast<size_t>(place.rank)), 1);
    } else if (const int missing = count_missing(store, others); missing == 0) {
      store.set(kAll, "1");
    } else {
      which = std::to_string(missing) + " of " + std::to_string(place.size);
    }
    if (store.check({kAll})) return;
    if (Clock::now() - start > kQuiet && !std::exchange(told, true))
      print_notice("waiting for " + which + " processes");
    if (Clock::now() - start > kPatience) {
      throw Error("[ranks] not all of " + std::to_string(place.size) +
                  " processes have come within 30 minutes; start them all");
    }
  }
}

}  // namespace

void begin_meeting(const RankPlace& place) {
  bool told = false;
  for (const auto start = Clock::now(); !meeting().store;) {
    try {
      connect(place, kQuiet);
    } catch (const Error&) {
      if (place.rank == 0 || Clock::now() - start > kConnecting) throw;
      if (!std::exchange(told, true)) print_notice("waiting for rank 0 at " + address_text());
      std::this_thread::sleep_for(kLook);
    }
  }
  const std::string size = std::to_string(place.size);
  const std::vector<uint8_t> nothing, own(size.begin(), size.end());
  const auto first = meeting().store->compareSet(kSize, nothing, own);
  if (const std::string other(first.begin(), first.end()); other != size) {
    throw Error("[ranks] WORLD_SIZE is " + size + ", and another process has " + other + "; give all the same");
  }
}

Store wait_for_ranks(const RankPlace& place) {
  try {
    wait_in_store(place, *meeting().store);
  } catch (const c10::Error&) {
    meeting().over = true;
    throw Error("[ranks] rank 0 has ended while rank " + std::to_string(place.rank) +
                " waited for it; its own message says why");
  }
  meeting().over = true;
  return meeting().store;
}

void tell_ranks(const std::string& reason) noexcept {
  try {
    if (meeting().over) return;
    const auto place = place_from_environment();
    if (!place) return;
    if (!meeting().store) connect(*place, kGrace);
    meeting().store->set(kFailed, "rank " + std::to_string(place->rank) + " cannot begin: " + reason);
    leave(*place);
  } catch (const std::exception&) {  // nobody is there, or the environment is what is wrong: the reason is printed
  }
}

}  // namespace remat::cli
