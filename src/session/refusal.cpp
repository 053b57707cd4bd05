// What a step is told that has no room: what it takes, and what would do.
#include <algorithm>
#include <cmath>
#include <new>
#include <tuple>

#include <remat/budget.h>

#include "observe/recorder.h"
#include "pytorch/raise.h"
#include "session/online_eviction.h"
#include "session/pool_state.h"

namespace remat {
namespace {

/// For the part of a refused step that comes after the refusal: a share of the bytes that it has above its baseline.
constexpr int64_t kPartAhead = 4;          ///< of a step that is not known to its end
constexpr int64_t kPartMispredicted = 32;  ///< of one that was predicted to fit

/// See BudgetError::needed_percent(): all in bytes above the baseline, `peak` what the share is of.
std::optional<double> percentage_of(int64_t bytes, int64_t limit, int64_t peak) {
  // What is predicted may be more than plain takes, of which 100 % leave room for all.
  if (peak <= 0 || bytes <= 0 || limit >= peak) return std::nullopt;
  return std::min(100.0, std::ceil(100 * static_cast<double>(bytes) / static_cast<double>(peak)));
}

const char* limit_name(bool is_device, bool beside_others, const PoolStep* pool) {
  if (pool != nullptr && !beside_others && !is_device)
    return pool->runs_alone() ? "the pool has " : "the pool, for all its steps, has ";
  if (!is_device) return "the budget is ";
  return beside_others ? "the smallest limit of the steps in progress, other sessions' too, is "
                       : "the device's limit, which set_limit() or ulimit may have lowered, is ";
}

const char* way_out(bool is_device, bool beside_others, const PoolStep* pool) {
  if (beside_others) return "; run one step at a time, or give each session as bytes ";
  const bool shared = pool != nullptr && !pool->runs_alone() && !is_device;
  return shared ? "; try again, since this session's next step runs alone, or give the pool " : "; give ";
}

}  // namespace

/// What is alive whatever a step chose to drop: plain's bytes at this moment without all that can be recomputed. What a
/// replay in progress holds is left out, since with other choices there would be none.
int64_t OnlineEviction::lower_bound(int64_t request) {
  int64_t bytes = plain_with(request);
  for (const auto& tape : living_tapes()) {
    const TapeLock lock = lock_for_a_while(tape->mutex);
    if (!lock.owns_lock() || tape->forgotten_from != kNoId) return facts_.baseline;
    for (ValueId id = 0; id < tape->values.size(); ++id) {
      const Value& value = tape->values[id];
      // Leaves stay, and plain's bytes are without what is kept for replays alone.
      const bool recomputable =
          value.producer != kNoId && !value.is_pinned() && value.account != PlainAccount::kReplaysOnly;
      const bool held_in_vain = value.kept && (!value.is_in_use() || value.needs.wanted > 0);
      if (value.account == PlainAccount::kPlainOnly || (recomputable && held_in_vain)) bytes -= value.bytes;
    }
  }
  return std::max(bytes, facts_.baseline);  // the step began with its baseline, which may have been freed since
}

/// See BudgetError::needed_bytes(). `needed` are alive with the allocation that was refused.
int64_t OnlineEviction::needed_bytes(int64_t needed, int64_t limit, const Tape* tape,
                                     const std::optional<int64_t>& predicted) const {
  const int64_t before = facts_.baseline + (tape != nullptr ? tape->counts.adopted_bytes : 0);
  if (predicted) {
    const int64_t more = limit + std::max<int64_t>(1, (limit - before) / kPartMispredicted);
    return std::max({*predicted, needed, *predicted <= limit ? more : 0});
  }
  const int64_t gradients = tape != nullptr ? tape->counts.parameter_bytes - tape->counts.gradient_bytes : 0;
  const int64_t so_far = std::max(needed, before + gradients);
  const int64_t of_step = so_far > before ? so_far - before : so_far;  // a step that cannot begin has taken nothing yet
  return std::max(so_far + of_step / kPartAhead, limit + 1);
}

void OnlineEviction::refuse(int64_t needed, int64_t request, int64_t limit) {
  if (memory::Dispensable::active()) throw std::bad_alloc();
  const int64_t least = lower_bound(request);
  int64_t parameters = 0, gradients = 0;
  for (const auto& tape : living_tapes()) {
    const TapeLock lock = lock_for_a_while(tape->mutex);
    if (!lock.owns_lock()) continue;
    parameters += tape->counts.parameter_bytes;
    gradients += tape->counts.gradient_bytes;
  }
  const auto step = request == 0 ? nullptr : step_in_progress();
  TapeLock lock = step ? lock_for_a_while(step->mutex) : TapeLock();
  const Tape* const tape = lock.owns_lock() ? step.get() : nullptr;
  Known earlier = facts_.known ? facts_.known(tape, request) : Known();
  // Where no graphs are known (the planner is "online"), a step that has completed tells as much.
  const bool tells = !earlier.predicted && !earlier.larger && earlier.smallest.value_or(0) > limit;
  if (tells) earlier.predicted = *earlier.smallest + earlier.for_times;
  const int64_t enough = std::max(least, needed_bytes(needed, limit, tape, earlier.predicted));
  const int64_t under_mode = tape != nullptr ? tape->counts.under_mode : 0;
  const int64_t adopted = tape != nullptr ? tape->counts.adopted_bytes : 0;
  if (tape != nullptr) lock.unlock();
  const int64_t updates = ledger_.updates();
  const auto [step_name, share, base] = [&] {
    const MutexLock share_lock(mutex_);
    return std::tuple(step_name_, share_, base_);
  }();
  const bool is_share = share.of && limit < share.most;  // and no number that holds too
  const std::optional<double> percentage =
      is_share ? percentage_of(enough - base, limit - base, *share.of) : std::nullopt;
  const bool may_rise = share.percent > 0 || share.gives_way;
  const bool is_device = facts_.of_device || (may_rise && limit >= share.most && share.most_of_device);
  std::string before = format_bytes(facts_.baseline + adopted) + " of it since before the step";
  if (parameters > 0) {
    before += " (" + format_bytes(parameters) + " of parameters read so far, " + format_bytes(gradients) +
              " of their gradients)";
  }
  const bool is_reserved = ledger_.reserved() > 0 && needed > ledger_.current() + request;
  const std::string around = is_reserved ? ", what PyTorch's allocator reserves around " +
                                               format_bytes(ledger_.current()) + " of tensors included"
                                         : "";
  const std::string what = request == 0
                               ? "It begins with " + format_exact_bytes(needed) + " alive, "
                               : "An allocation of " + format_bytes(request) + " needs " + format_exact_bytes(needed) +
                                     " at once with everything dropped that can be" + around + ", " + before + ", ";
  // accelerate's find_executable_batch_size() tells by " out of memory." that a smaller batch may do.
  const bool elsewhere = step != nullptr && Recorder::current_of(step) == nullptr;
  std::string message = "[budget] " + step_name + (elsewhere ? ", in progress on another thread," : "") +
                        " is out of memory. " + what + limit_name(is_device, facts_.beside_others, facts_.pool) +
                        format_exact_bytes(limit) +
                        (is_share ? ", too small a share, " + Budget::percent(share.percent).to_string() + ", of the " +
                                        format_exact_bytes(*share.of) + " that the largest step so far takes in plain"
                                  : "") +
                        way_out(is_device, facts_.beside_others, facts_.pool) + format_exact_bytes(enough) +
                        (percentage ? " or " + Budget::percent(*percentage).to_string() : "") + ", ";
  if (earlier.predicted) {
    message += "which a step like those before is predicted to take now, or less work per step";
  } else {
    message +=
        "or less work per step; what comes later in the step is not known yet and may take more: fit_budget() tries "
        "until it has the smallest that works";
  }
  message += "; no budget below " + format_exact_bytes(least) + " can work" + (earlier.last ? earlier.need : "");
  if (under_mode > 0) {
    message += "; " + std::to_string(under_mode) +
               " operators ran under a dispatch mode (as FlopCounterMode is one), " +
               "of which nothing can be dropped: leave the mode out, or use it in a step without a budget";
  }
  if (updates > 0) {
    message += "; this step has updated " + std::to_string(updates) +
               " parameters in backward: load model and optimizer from a checkpoint before the next";
  }
  message += "; docs/out-of-memory.md says what else makes room";
  {
    const MutexLock refusals_lock(mutex_);
    refusal_ = {.budget_bytes = limit, .lower_bound_bytes = least, .needed_bytes = enough};
  }
  raise(BudgetError(message, limit, least, earlier.smallest, enough, percentage));
}

}  // namespace remat
