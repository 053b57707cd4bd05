#include "cli/rank_meeting.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include <remat/error.h>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace remat::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Store = c10::intrusive_ptr<c10d::Store>;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using std::chrono_literals::operator""min;

constexpr auto kLook = 50ms;        // between looks at the store
constexpr auto kQuiet = 10s;        // what is waited for longer is said
constexpr auto kPatience = 30min;   // as long as c10d's own groups wait
constexpr auto kConnecting = 5min;  // as long as c10d's own stores try
constexpr auto kGrace = 10s;        // for the others to hear of a failure

// Keys. The first and the last are counts of processes.
constexpr const char* kReady = "remat/ready";
constexpr const char* kFailed = "remat/failed";
constexpr const char* kHeard = "remat/heard";

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

void connect(const RankPlace& place, std::chrono::milliseconds timeout) {
  // torchrun keeps the store itself, and says so.
  const char* const kept = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(std::strtoul(std::getenv("MASTER_PORT"), nullptr, 10));
  options.isServer = place.rank == 0 && (kept == nullptr || std::string(kept) != "True");
  options.timeout = timeout;
  // A store that outlives a restart has the keys of those that met before.
  const char* const restart = std::getenv("TORCHELASTIC_RESTART_COUNT");
  const std::string address = std::getenv("MASTER_ADDR");
  try {
    meeting() = {.store = c10::make_intrusive<c10d::PrefixStore>(restart == nullptr ? "0" : restart,
                                                                 c10::make_intrusive<c10d::TCPStore>(address, options)),
                 .serves = options.isServer};
  } catch (const std::exception& error) {
    const std::string at = address + ":" + std::getenv("MASTER_PORT");
    if (options.isServer) {
      throw Error("[ranks] rank 0 cannot listen at " + at + "; give MASTER_PORT another number, that of a free port");
    }
    throw Error("[ranks] rank " + std::to_string(place.rank) + " cannot reach rank 0 at " + at +
                "; start rank 0 there, with the same MASTER_ADDR and MASTER_PORT");
  }
}

/// Waits for `done`, not forever.
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

}  // namespace

void begin_meeting(const RankPlace& place) { connect(place, kConnecting); }
Store shared_store() { return meeting().store; }

void wait_for_ranks(const RankPlace& place) {
  const Store store = shared_store();
  store->add(kReady, 1);
  const auto start = Clock::now();
  bool told = false;
  const auto all_ready = [&] {
    if (store->check({kFailed})) {
      const std::string reason = store->get_to_str(kFailed);
      leave(place);
      throw Error("[ranks] " + reason);
    }
    const int64_t missing = place.size - store->add(kReady, 0);
    if (missing > 0 && !told && Clock::now() - start > kQuiet) {
      std::fprintf(stderr, "remat: waiting for %lld of %d processes\n", static_cast<long long>(missing), place.size);
      told = true;
    }
    return missing <= 0;
  };
  if (!poll_until(all_ready, kPatience)) {
    throw Error("[ranks] " + std::to_string(place.size - store->add(kReady, 0)) + " of " + std::to_string(place.size) +
                " processes have not come within 30 minutes; start them all");
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
