#include "replay/replay.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "device/device.h"
#include "device/storage_over.h"
#include "memory/ledger.h"
#include "observe/recorder.h"
#include "pytorch/raise.h"
#include "pytorch/tensors_of.h"
#include "replay/move_in.h"
#include "replay/operator_call.h"
#include "replay/repeatability.h"
#include "tape/checksum.h"
#include "tape/packing.h"
#include "util/seconds_since.h"

namespace remat {
namespace {

/// One replay: the operations to run, in order, and the storages that they read.
class Replay {
 public:
  Replay(Tape& tape, ValueId target) : tape_(tape), target_(target) {}
  ~Replay() {
    if (!started_) return;
    const memory::FrozenPlain frozen;
    const std::lock_guard lock(tape_.mutex);
    for (const auto& [id, held] : held_) tape_.values.stop_wanting(id);
    held_.clear();
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  StoragePtr run() {
    {
      const std::lock_guard lock(tape_.mutex);
      if (StoragePtr alive = tape_.values.alive(target_)) return alive;
      started_ = true;
      plan();
    }
    const Recorder::Suspension unseen;
    if (operations_.empty()) restore();
    for (const OperationId id : operations_) {
      const memory::FrozenPlain frozen;
      run_operation(id);
    }
    const std::lock_guard lock(tape_.mutex);
    tape_.values.return_to_plain(target_);
    return std::move(result_);
  }

 private:
  void plan() {
    want(target_);  // the caller's
    if (tape_.values[target_].form.contents == nullptr) find_operations();
  }

  /// Finds the operations to run: backwards from the target to the values that are alive. Iterative: graphs are deep.
  void find_operations() {
    Program& program = tape_.program;
    const uint32_t stamp = program.next_stamp();
    std::vector<ValueId> missing = {target_};
    while (!missing.empty()) {
      const ValueId id = missing.back();
      missing.pop_back();
      const Value& value = tape_.values[id];
      if (value.producer == kNoId) refuse_lost(tape_, id);
      const Operation& operation = program[value.producer];
      if (program.is_stamped(value.producer, stamp)) continue;
      program.stamp(value.producer) = stamp;
      if (!operation.info->repeatable()) refuse_distrusted(*operation.info);
      operations_.push_back(value.producer);
      program.for_each_value(operation, [&](ValueId input) {
        if (!want(input)) return;
        const StoragePtr alive = tape_.values.readable(input);
        if (!alive) {
          if (!tape_.values[input].form.contents) missing.push_back(input);
        } else if (!tape_.values[input].kept) {
          held_.at(input).storage = alive;
        }
      });
    }
    std::sort(operations_.begin(), operations_.end());
  }

  /// Counts a read to come; true for the first of this value.
  bool want(ValueId id) {
    auto [entry, first] = held_.emplace(id, HeldStorage());
    ++entry->second.uses;
    if (first) tape_.values.want(id);
    return first;
  }

  /// A form has the target's contents.
  void restore() {
    const memory::FrozenPlain frozen;
    std::shared_ptr<const HeldContents> packed;
    int64_t bytes = 0;
    {
      const std::lock_guard lock(tape_.mutex);
      const Value& value = tape_.values[target_];
      if (value.form.is_packed()) packed = value.form.contents;
      bytes = value.bytes;
    }
    if (packed != nullptr) {
      unpack(static_cast<const Packed&>(*packed), bytes);
      return;
    }
    const StoragePtr storage = move_in(tape_, target_);
    {
      const std::lock_guard lock(tape_.mutex);
      if (storage) {
        take(target_, storage, *tape_.program[tape_.values[target_].producer].info);
      } else if (StoragePtr alive = tape_.values.alive(target_)) {
        result_ = std::move(alive);  // another thread has brought it back
      } else {
        find_operations();
      }
    }
    if (storage) begin_to_come(tape_);
  }

  void unpack(const Packed& packed, int64_t bytes) {
    const auto begin = std::chrono::steady_clock::now();
    const StoragePtr storage = device::new_storage(static_cast<size_t>(bytes), device::kHost);
    packed.unpack(*storage);
    const auto seconds = seconds_since(begin);
    const std::lock_guard lock(tape_.mutex);
    tape_.counts.replay_seconds += seconds;
    take(target_, storage, *tape_.program[tape_.values[target_].producer].info);
  }

  /// Takes hold of an operator's inputs. A value that was evicted since plan() is recomputed by a replay of its own,
  /// and one that is packed or moved is restored.
  void hold_inputs(OperationId id) {
    std::vector<ValueId> inputs;
    {
      const std::lock_guard lock(tape_.mutex);
      tape_.program.for_each_value(tape_.program[id], [&](ValueId input) { inputs.push_back(input); });
    }
    for (const ValueId input : inputs) {
      if (held_.at(input).storage) continue;
      StoragePtr storage = materialize(tape_, input);
      held_.at(input).storage = std::move(storage);
    }
  }

  void run_operation(OperationId id) {
    hold_inputs(id);
    std::optional<OperatorCall> call;
    {
      const std::lock_guard lock(tape_.mutex);
      tape_.program.for_each_value(tape_.program[id], [&](ValueId input) {
        tape_.values.streams.used(*held_.at(input).storage, /*for_record=*/true);
      });
      call.emplace(tape_, id, held_);
    }
    const auto begin = std::chrono::steady_clock::now();
    call->run();
    const auto seconds = seconds_since(begin);
    const std::lock_guard lock(tape_.mutex);
    const Operation operation = call->operation();
    ++tape_.counts.replays;
    tape_.counts.replay_seconds += seconds;
    ReplayCost& cost = tape_.counts.replayed[operation.info];
    ++cost.count;
    cost.seconds += seconds;
    take_results(operation, call->results(), call->written());
    call.reset();  // its copies are freed before the inputs are released
    tape_.program.for_each_value(operation, [&](ValueId input) { use_once(input); });
  }

  void use_once(ValueId id) {
    const auto entry = held_.find(id);
    if (entry == held_.end()) return;
    if (--entry->second.uses == 0) {
      tape_.values.stop_wanting(id);
      held_.erase(entry);
    } else if (tape_.values[id].kept && tape_.values[id].kept == entry->second.storage) {
      entry->second.storage.reset();
    }
  }

  void take_results(const Operation& operation, const torch::jit::Stack& outputs,
                    const std::vector<StoragePtr>& written) {
    std::vector<StoragePtr> results;
    for_each_result(outputs, [&](const at::Tensor& t) {
      results.push_back(t.defined() ? StoragePtr::reclaim_copy(storage_of(t)) : StoragePtr());
    });
    for (ValueId id = operation.first_value; id < operation.first_value + operation.value_count; ++id) {
      const Value& value = tape_.values[id];
      if (value.producer == kNoId) continue;  // forgotten since
      const size_t index = value.result >= Value::kWritten ? value.result - Value::kWritten : value.result;
      const auto& source = value.result >= Value::kWritten ? written : results;
      if (index >= source.size() || !source[index] || static_cast<int64_t>(source[index]->nbytes()) != value.bytes) {
        raise(InternalError("[replay] " + operation.info->name +
                            " gave a result of another size than before; please report this"));
      }
      tape_.counts.replayed[operation.info].bytes += value.bytes;
      take(id, source[index], *operation.info);
    }
  }

  void take(ValueId id, const StoragePtr& storage, const OperatorInfo& info) {
    const Value& value = tape_.values[id];
    const auto message = [&] {
      const std::string found = "[replay] " + info.name + " gave other bits than before: ";
      if (DeferredChecksums::is_deferred(value.watch.checksum)) {
        return found +
               "it does not repeat on this device (or its result was written to through a pointer), so that the "
               "gradients of this step are wrong; run the step again: from now on its results are held";
      }
      return found +
             "its result was written to through a pointer (such as .numpy() gives) or .data after the forward pass "
             "made it, or it does not repeat; modify it after backward, mark it with keep(), or say so of the "
             "operator: declare_not_repeatable(), remat.not_repeatable()";
    };
    if (value.watch.checksum != 0 &&
        tape_.values.checksums.differ(value.watch.checksum, *storage, {0, value.extent}, message, &info)) {
      if (tape_.values.verify && value.watch.exported != Exported::kBeforeEviction) {
        raise(InternalError("[replay] " + info.name +
                            " gave other bits than before: it is not repeatable here (please report this), or its "
                            "result was written to through a pointer"));
      }
      raise(Error(message()));
    }
    const auto entry = held_.find(id);
    const bool needed = entry != held_.end();
    const bool emptied = tape_.values.emptied(id) != nullptr;  // saved tensors see the new contents, replays the old
    const StoragePtr alive = tape_.values.alive(id);
    if (id == target_) result_ = alive ? alive : storage;
    if (emptied || alive) {
      if (needed && !tape_.values.readable(id)) entry->second.storage = storage;
      return;
    }
    tape_.values.count_recompute(id);
    if ((value.needs.pending > 0 && value.action.holds(value.needs.recompute_count)) || id == target_) {
      if (tape_.moves) tape_.moves->note_made(id);
      tape_.values.restore(id, storage);
      if (value.kept) return;  // until it has been asked for, or memory runs short
    }
    if (needed) entry->second.storage = storage;
  }

  Tape& tape_;
  const ValueId target_;
  bool started_ = false;
  StoragePtr result_;  ///< the target's: held, so that no other thread's want of memory takes it away
  std::vector<OperationId> operations_;
  HeldStorages held_;
};

}  // namespace

StoragePtr materialize(Tape& tape, ValueId value) { return Replay(tape, value).run(); }

}  // namespace remat
