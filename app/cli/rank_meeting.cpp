#include "cli/rank_meeting.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <thread>
#include <vector>

#include <unistd.h>

#include <c10/util/Logging.h>

#include <remat/error.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

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
std::string beats(int rank) { return "remat/beats/" + std::to_string(rank); }      // looks of one that waits
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

/// Looks until `done`; false where that takes longer than `limit`.
template <class F>
bool poll_until(const F& done, Clock::duration limit) {
  for (const auto start = Clock::now(); !done(); std::this_thread::sleep_for(kLook)) {
    if (Clock::now() - start > limit) return false;
  }
  return true;
}

// The store stays until the others know of the failure.
void leave(const RankPlace& place) {
  Meeting& own = meeting();
  own.over = true;
  own.store->add(kHeard, 1);
  if (own.serves) poll_until([&] { return own.store->add(kHeard, 0) >= place.size; }, kGrace);
}

/// Rank 0's view of the others: a process that waits counts its looks.
class Others {
 public:
  explicit Others(int size) : seen_(static_cast<size_t>(size)) {}

  /// How many are not there. Throws Error where one was, and is not heard of any more.
  int missing(c10d::Store& store) {
    int missing = 0;
    const auto now = Clock::now();
    for (int rank = 1; rank < static_cast<int>(seen_.size()); ++rank) {
      Seen& one = seen_[static_cast<size_t>(rank)];
      const int64_t beats_now = store.add(beats(rank), 0);
      if (beats_now != one.beats) one = {beats_now, now};
      const bool came = one.beats != 0;
      if (came && now - one.last > kSilent) {
        throw Error("[ranks] rank " + std::to_string(rank) +
                    " has ended, or has stopped, before all were there; start all again");
      }
      if (!came || now - one.last > 10 * kLook) ++missing;  // of one that came: maybe
    }
    return missing;
  }

 private:
  struct Seen {
    int64_t beats = 0;
    Clock::time_point last;
  };
  std::vector<Seen> seen_;
};

void wait_in_store(const RankPlace& place, c10d::Store& store) {
  const std::string own = std::to_string(getpid()) + " " + std::to_string(Clock::now().time_since_epoch().count());
  store.set(process(place.rank), own);
  Others others(place.size);
  std::optional<int> missing;
  bool told = false;
  const auto start = Clock::now();
  const auto all_are_there = [&] {
    if (store.check({kFailed})) {
      const std::string reason = store.get_to_str(kFailed);
      leave(place);
      throw Error("[ranks] " + reason);
    }
    if (store.get_to_str(process(place.rank)) != own) {
      throw Error("[ranks] two processes have RANK " + std::to_string(place.rank) + "; give each its own");
    }
    if (place.rank == 0) {
      missing = others.missing(store);
      if (missing == 0) store.set(kAll, "1");
    } else {
      store.add(beats(place.rank), 1);
    }
    if (store.check({kAll})) return true;
    if (!told && Clock::now() - start > kQuiet) {
      const std::string which = missing ? std::to_string(*missing) + " of " + std::to_string(place.size) : "other";
      std::fprintf(stderr, "remat: waiting for %s processes\n", which.c_str());
      told = true;
    }
    return false;
  };
  if (!poll_until(all_are_there, kPatience)) {
    throw Error("[ranks] not all of " + std::to_string(place.size) +
                " processes have come within 30 minutes; start them all");
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
      if (!told) std::fprintf(stderr, "remat: waiting for rank 0 at %s\n", address_text().c_str());
      told = true;
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

Store shared_store() { return meeting().store; }

void wait_for_ranks(const RankPlace& place) {
  try {
    wait_in_store(place, *meeting().store);
  } catch (const c10::Error&) {
    meeting().over = true;
    throw Error("[ranks] rank 0 has ended while rank " + std::to_string(place.rank) +
                " waited for it; its own message says why");
  }
  meeting().over = true;
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
