// Runs a step's allocations through the caching allocator. What the plan changes about them is up to the machine that
// simulates steps (step_machine.h); its states say which values are in memory.
#include <remat/device_estimate.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <remat/error.h>

#include "plan/caching_allocator.h"
#include "plan/step_machine.h"

namespace remat {
namespace {

using Memory = ValueState::Memory;

/// The device's memory: an allocator that the predicted training is given what it needs from in any case.
class Device {
 public:
  explicit Device(const DeviceMemory& memory)
      : bytes_(memory.bytes), allocator_(parse_allocator_settings(memory.settings)) {
    allocator_.set_limit(bytes_);
  }

  /// The address of a block; -1: of nothing.
  int64_t take(int64_t bytes) {
    if (bytes == 0) return -1;
    requested_peak_ = std::max(requested_peak_, requested_ += bytes);
    const int64_t address = place(bytes);
    sizes_[address] = bytes;
    return address;
  }
  void give_back(int64_t& address) {
    if (address < 0) return;
    const auto size = sizes_.find(address);
    requested_ -= size->second;
    sizes_.erase(size);
    allocator_.free(std::exchange(address, -1));
  }

  /// Until set_free(), what is reserved is to be kept to a budget.
  void keep_to(int64_t budget) {
    budget_ = std::min(budget, bytes_);
    if (fits_) allocator_.set_limit(budget_);
    if (allocator_.reserved() > budget_) allocator_.release_cached();
  }
  void set_free() {
    if (fits_) allocator_.set_limit(bytes_);
  }

  /// The most that was requested since the last call, at once.
  int64_t take_requested_peak() { return std::exchange(requested_peak_, requested_); }
  bool fits() const { return fits_; }
  int64_t beyond() const { return beyond_; }
  CachingAllocator& allocator() { return allocator_; }

 private:
  int64_t place(int64_t bytes) {
    auto address = allocator_.allocate(bytes);
    if (!address && allocator_.limit() < bytes_) {
      allocator_.set_limit(std::min(bytes_, allocator_.reserved() + allocator_.segment_bytes(bytes)));
      beyond_ = std::max(beyond_, allocator_.limit() - budget_);
      address = allocator_.allocate(bytes);
    }
    if (!address) {
      fits_ = false;
      allocator_.set_limit(INT64_MAX);
      address = allocator_.allocate(bytes);
    }
    return *address;
  }

  const int64_t bytes_;
  CachingAllocator allocator_;
  std::unordered_map<int64_t, int64_t> sizes_;  ///< that were requested, by address
  int64_t requested_ = 0, requested_peak_ = 0;
  int64_t budget_ = INT64_MAX, beyond_ = 0;
  bool fits_ = true;
};

/// One step. It is the policy of the machine.
class DeviceStep {
 public:
  DeviceStep(const Graph& graph, const StepAllocations& allocations, const std::vector<Action>& actions, bool plain,
             Device& device)
      : graph_(graph),
        allocations_(allocations),
        actions_(actions),
        plain_(plain),
        device_(device),
        states_{initial_states(graph), {}},
        blocks_(block_count(allocations), -1),
        is_there_(graph.values.size()),
        remade_(graph.values.size(), -1),
        machine_(graph, states_, *this) {
    for (size_t v = 0; v < is_there_.size(); ++v) is_there_[v] = is_in_memory(static_cast<int32_t>(v));
  }

  void run() {
    const std::vector<StepChange> changes = changes_of(graph_, ChangesOf::kEveryEvent);
    machine_.run(changes.data(), changes.data() + changes.size(), [](const StepChange&, int64_t) { return true; });
    settle();
  }

  /// What is left when the step is over, gradients above all, goes.
  void end() {
    for (int64_t& block : blocks_) device_.give_back(block);
    for (int64_t& block : remade_) device_.give_back(block);
  }

  // The policy of StepMachine.
  void begin(const StepChange& /*change*/) { ++event_; }
  Action action(int32_t value) const { return graph_.values[value].returns() ? actions_[value] : Action::kKeep; }
  bool holds(int32_t value, int32_t times) const { return actions_[value].holds(times); }
  void will_replay(int32_t index, int32_t /*target*/) { replayed_ = index; }
  void will_unpack(int32_t value) { unpacked_ = value; }
  /// What happened before has left its states; now memory rises.
  int64_t evict(int64_t /*level*/) {
    if (replayed_ >= 0) {
      replay(std::exchange(replayed_, -1));
    } else {
      settle();
      if (unpacked_ >= 0) {
        remade_[unpacked_] = device_.take(graph_.values[unpacked_].bytes);
        unpacked_ = -1;
      } else {
        run_event();
      }
    }
    return 0;
  }

 private:
  static size_t block_count(const StepAllocations& allocations) {
    int32_t count = 0;
    for (const BlockChange& change : allocations.changes) count = std::max(count, change.block + 1);
    return static_cast<size_t>(count);
  }

  /// The blocks that plain takes and gives back between this event and the next.
  void run_event() {
    const auto& changes = allocations_.changes;
    for (; next_ < changes.size() && changes[next_].event <= event_; ++next_) {
      const BlockChange& change = changes[next_];
      if (change.bytes == 0) {
        device_.give_back(blocks_[change.block]);
      } else if (!change.for_replays || !plain_) {
        blocks_[change.block] = device_.take(change.bytes);
      }
    }
  }

  /// An operator that writes to a value that nobody else reads any more leaves its result in that one's block.
  void replay(int32_t index) {
    const GraphOperator& op = graph_.operators[index];
    adopt_made();
    int64_t written = -1, written_bytes = 0;
    for (const int32_t value : op.overwritten) {
      if (written >= 0 || is_in_memory(value)) continue;
      written = std::exchange(remade_[value], -1);
      written_bytes = graph_.values[value].bytes;
    }
    give_back_gone();
    for (const int32_t value : op.results) {
      const int64_t bytes = graph_.values[value].bytes;
      const bool in_place = written >= 0 && bytes == written_bytes;
      made_.emplace_back(value, in_place ? std::exchange(written, -1) : device_.take(bytes));
    }
    device_.give_back(written);
    int64_t scratch = device_.take(op.scratch_bytes);
    device_.give_back(scratch);
  }

  void settle() {
    adopt_made();
    give_back_gone();
  }

  void adopt_made() {
    for (auto& [value, block] : made_) {
      if (is_there_[value] || remade_[value] >= 0) {
        device_.give_back(block);
      } else {
        remade_[value] = block;
      }
    }
    made_.clear();
  }

  void give_back_gone() {
    for (const int32_t value : states_.touched) {
      if (is_in_memory(value)) continue;
      device_.give_back(remade_[value]);
      const int32_t block = allocations_.blocks[value];
      // Another value may have it since.
      if (is_there_[value] && block >= 0) device_.give_back(blocks_[block]);
      is_there_[value] = false;
    }
    states_.touched.clear();
  }

  bool is_in_memory(int32_t value) const {
    const Memory memory = states_.states[value].memory;
    return memory == Memory::kPresent || memory == Memory::kTransient;
  }

  const Graph& graph_;
  const StepAllocations& allocations_;
  const std::vector<Action>& actions_;
  const bool plain_;
  Device& device_;
  WatchedStates states_;
  std::vector<int64_t> blocks_;                    ///< by number: the address; -1: not taken, or given back
  std::vector<bool> is_there_;                     ///< by value: plain's contents, from the beginning or to come
  std::vector<int64_t> remade_;                    ///< by value: where replays have left it; -1: nowhere
  std::vector<std::pair<int32_t, int64_t>> made_;  ///< values and blocks of the operator that was replayed last
  StepMachine<WatchedStates, DeviceStep> machine_;
  size_t next_ = 0;  ///< of the changes
  int64_t event_ = -2;
  int32_t replayed_ = -1, unpacked_ = -1;
};

void check(const Graph& graph, const StepAllocations& allocations, const Plan* plan) {
  if (const std::string wrong = graph.problem(); !wrong.empty())
    throw Error("[estimate] the graph is not sound: " + wrong + "; record it again");
  if (const std::string wrong = allocations.problem(graph); !wrong.empty())
    throw Error("[estimate] " + wrong + "; give the allocations of the step that the graph is of");
  if (plan == nullptr) return;
  if (const std::string wrong = plan->problem(graph); !wrong.empty())
    throw Error("[estimate] " + wrong + "; give a plan for this graph");
  if (std::ranges::find(plan->actions, Action::kMove) != plan->actions.end())
    throw Error("[estimate] the plan moves values to a disk, as steps of a device cannot; give one that moves none");
}

std::vector<int64_t> take_all(Device& device, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> blocks;
  blocks.reserve(sizes.size());
  for (const int64_t bytes : sizes) blocks.push_back(device.take(bytes));
  return blocks;
}

}  // namespace

std::string StepAllocations::problem(const Graph& graph) const {
  if (blocks.size() != graph.values.size()) {
    return "the allocations are of " + std::to_string(blocks.size()) + " values, and the graph has " +
           std::to_string(graph.values.size());
  }
  int32_t taken = 0, event = 0;
  for (const BlockChange& change : changes) {
    if (change.event < event || change.event >= std::ssize(graph.events))
      return "events of allocations are not in order";
    event = change.event;
    const bool exists = change.block >= 0 && change.block < taken;
    if (change.bytes < 0 || (change.bytes == 0 ? !exists : change.block != taken)) {
      return "block " + std::to_string(change.block) + " is not taken once, in order";
    }
    if (change.bytes > 0) ++taken;
  }
  const bool exist = std::ranges::all_of(blocks, [&](int32_t block) { return block >= -1 && block < taken; });
  return exist ? "" : "a value has a block that is never taken";
}

DevicePeaks predict_on_device(const Graph& graph, const StepAllocations& allocations, const TrainingLoop& loop,
                              const DeviceMemory& memory, const Plan* plan) {
  check(graph, allocations, plan);
  const std::vector<Action> actions =
      plan != nullptr ? plan->actions : std::vector<Action>(graph.values.size(), Action::kKeep);
  Device device(memory);
  DevicePeaks peaks;
  take_all(device, loop.model);
  for (int number = 0; number < loop.steps; ++number) {
    device.allocator().reset_peaks();
    if (plan != nullptr) device.keep_to(plan->budget_bytes);
    DeviceStep step(graph, allocations, actions, plan == nullptr, device);
    device.take_requested_peak();
    step.run();
    peaks.step_bytes = std::max(peaks.step_bytes, device.take_requested_peak());
    device.set_free();
    if (number == 0) take_all(device, loop.state);
    for (int64_t& block : take_all(device, loop.update)) device.give_back(block);
    step.end();
    peaks.allocated_bytes = std::max(peaks.allocated_bytes, device.allocator().allocated_peak());
    peaks.reserved_in_steps.push_back(device.allocator().reserved_peak());
    peaks.reserved_bytes = std::max(peaks.reserved_bytes, device.allocator().reserved_peak());
  }
  peaks.fits = device.fits();
  peaks.beyond_bytes = device.beyond();
  peaks.releases = device.allocator().retries();
  return peaks;
}

std::vector<AllocatorState> simulate_allocator(const std::vector<AllocatorRequest>& requests,
                                               const DeviceMemory& device) {
  CachingAllocator allocator(parse_allocator_settings(device.settings));
  allocator.set_limit(device.bytes);
  std::vector<AllocatorState> states;
  std::vector<int64_t> blocks;  // by request
  for (const AllocatorRequest& request : requests) {
    AllocatorState& state = states.emplace_back();
    int64_t& block = blocks.emplace_back(-1);
    if (request.frees >= 0) {
      if (request.frees >= std::ssize(blocks) || blocks[request.frees] < 0) {
        throw Error("[allocator] request " + std::to_string(blocks.size() - 1) + " frees the block of request " +
                    std::to_string(request.frees) + ", which has none; free each block once");
      }
      allocator.free(std::exchange(blocks[request.frees], -1));
    } else if (request.bytes > 0) {
      block = allocator.allocate(request.bytes).value_or(-1);
      state.refused = block < 0;
    } else {
      allocator.release_cached();
    }
    state.allocated_bytes = allocator.allocated();
    state.reserved_bytes = allocator.reserved();
    state.segments = allocator.segments();
  }
  return states;
}

}  // namespace remat
