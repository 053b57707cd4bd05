#include "run/replay.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>
#include <c10/util/flat_hash_map.h>

#include "memory/ledger.h"
#include "record/checksum.h"
#include "record/generator_state.h"
#include "record/raise.h"
#include "record/read_checksum.h"
#include "record/recorder.h"
#include "record/tensors_of.h"
#include "run/batch_norm.h"

namespace remat {
namespace {

/// What may be between the caller and the kernel while backward runs, and was not when the operator was recorded, or
/// has done its part then: autocast, the user's dispatch modes, levels of torch.func.
const c10::DispatchKeySet kModeKeys = c10::DispatchKeySet(
    {c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA, c10::DispatchKey::Python,
     c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
     c10::DispatchKey::FuncTorchDynamicLayerBackMode, c10::DispatchKey::FuncTorchVmapMode, c10::DispatchKey::VmapMode});

/// One replay: the operations to run, in order, and the storages that it needs on the way.
class Replay {
 public:
  Replay(Tape& tape, ValueId target) : tape_(tape), target_(target) {}
  ~Replay() {
    if (!started_) return;
    const memory::FrozenPlain frozen;
    const std::lock_guard lock(tape_.mutex);
    for (const auto& [id, held] : held_) --tape_.values[id].wanted;
    held_.clear();
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  StoragePtr run() {
    {
      const std::lock_guard lock(tape_.mutex);
      if (StoragePtr alive = tape_.alive(target_)) return alive;
      started_ = true;
      plan();
    }
    const Recorder::Suspension unseen;
    if (operations_.empty()) unpack();
    for (const OperationId id : operations_) {
      const memory::FrozenPlain frozen;
      run_operation(id);
    }
    const std::lock_guard lock(tape_.mutex);
    tape_.values[target_].absent = false;
    return std::move(result_);
  }

 private:
  struct Held {
    StoragePtr storage;  // null while the tape keeps it, so that it can be given up between two operators
    uint32_t uses = 0;   // reads by operations that have not run yet
  };

  /// Finds the operations to run: backwards from the target until what is alive. Iterative: graphs are deep.
  void plan() {
    const uint32_t stamp = tape_.next_visit();
    std::vector<ValueId> missing = {target_};
    want(target_);  // the caller's
    if (tape_.values[target_].packed) return;
    while (!missing.empty()) {
      const ValueId id = missing.back();
      missing.pop_back();
      const Value& value = tape_.values[id];
      if (value.producer == kNone) lost(id);
      Operation& operation = tape_.operations[value.producer];
      if (operation.visit == stamp) continue;
      operation.visit = stamp;
      if (!operation.info->repeatable()) distrusted(*operation.info);
      operations_.push_back(value.producer);
      tape_.for_each_tensor(operation, [&](const TensorArgument& t, uint32_t) {
        if (t.value == kNone) return;
        if (!want(t.value)) return;
        const StoragePtr alive = tape_.readable(t.value);
        if (!alive) {
          if (!tape_.values[t.value].packed) missing.push_back(t.value);
        } else if (!tape_.values[t.value].kept) {
          held_.at(t.value).storage = alive;
        }
      });
    }
    std::sort(operations_.begin(), operations_.end());
  }

  /// Counts a read to come; true for the first of this value.
  bool want(ValueId id) {
    auto [entry, first] = held_.emplace(id, Held());
    ++entry->second.uses;
    if (first) ++tape_.values[id].wanted;
    return first;
  }

  /// The target is held packed.
  void unpack() {
    const memory::FrozenPlain frozen;
    std::shared_ptr<const Packed> packed;
    size_t bytes = 0;
    {
      const std::lock_guard lock(tape_.mutex);
      packed = tape_.values[target_].packed;
      bytes = static_cast<size_t>(tape_.values[target_].bytes);
    }
    const auto begin = std::chrono::steady_clock::now();
    const auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                               c10::GetAllocator(c10::kCPU), /*resizable=*/true);
    packed->unpack(*storage);
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const std::lock_guard lock(tape_.mutex);
    tape_.replay_seconds += seconds;
    take(target_, storage, *tape_.operations[tape_.values[target_].producer].info);
  }

  /// Takes hold of an operator's inputs. What was given up since the plan was made is brought back by a replay of its
  /// own, and so is what is packed.
  void hold_inputs(OperationId id) {
    std::vector<ValueId> inputs;
    {
      const std::lock_guard lock(tape_.mutex);
      tape_.for_each_tensor(tape_.operations[id], [&](const TensorArgument& t, uint32_t) {
        if (t.value != kNone) inputs.push_back(t.value);
      });
    }
    for (const ValueId input : inputs) {
      if (held_.at(input).storage) continue;
      StoragePtr storage = materialize(tape_, input);
      held_.at(input).storage = std::move(storage);
    }
  }

  /// Throws where an input is not what it was when `reader` was recorded.
  void check_input(const TensorArgument& argument, const StoragePtr& contents, const Operation& reader) const {
    const Value& value = tape_.values[argument.value];
    const bool counted = value.producer == kNone && value.written_unseen();
    const auto argument_differs = [&] {
      if (argument.checksum == 0) return false;
      const at::Tensor tensor = argument.view.over(contents);
      if (argument.checksum == checksum(*tensor.unsafeGetTensorImpl())) return false;
      forget_constant(*tensor.unsafeGetTensorImpl());
      return true;
    };
    const auto value_differs = [&] {
      return value.checksum != 0 && value.checksum != checksum(*contents, {0, value.extent});
    };
    const bool through_pointer = !counted && (argument_differs() || value_differs());
    if (!counted && !through_pointer) return;
    raise(Error("[replay] " + reader.info->name + " cannot be repeated: " + describe(argument.value, reader) +
                " was modified in place after " +
                (value.producer == kNone ? "the forward pass read it (" : "the operator that made it had run (") +
                (counted ? "version " + std::to_string(value.version) + ", now " +
                               std::to_string(value.version_counter.current_version())
                         : "through a pointer or .data") +
                "); modify it after backward, or inside the step by an operator that remat sees" +
                (counted ? "" : "; or what made it gives other bits at every call: declare_not_repeatable()")));
  }

  /// Why the contents of a leaf cannot be read, and what to do about it.
  std::string why_lost(ValueId id) const {
    const Value& value = tape_.values[id];
    if (tape_.emptied(id) || value.loss == Loss::kEmptied) {
      return "was emptied after the forward pass read it (its storage was resized or given other memory), and does not "
             "have the same contents now; fill it again before backward, or empty it after backward";
    }
    if (value.loss == Loss::kWrittenUnseen) {
      return "was modified in place after the forward pass read it, in a way that remat does not see (on another "
             "thread, or in a kernel of the user's); modify it after backward, or by an operator on the step's thread";
    }
    return "was overwritten after the forward pass read it and there was no room for a copy; modify it after backward, "
           "or raise the budget";
  }

  [[noreturn]] static void distrusted(const OperatorInfo& info) {
    const char* const why = info.contradicted ? "a later call wrote to an input, or gave back memory of one, and its "
                                                "schema does not say so"
                                              : "it was declared not repeatable after this call";
    raise(Error("[replay] " + info.name + " cannot be repeated: " + why +
                "; run the step again, now its results are held"));
  }

  [[noreturn]] void lost(ValueId id) const {
    for (const auto& operation : tape_.operations) {
      if (operation.info == nullptr) continue;
      bool reads = false;
      tape_.for_each_tensor(operation, [&](const TensorArgument& t, uint32_t) { reads = reads || t.value == id; });
      if (!reads) continue;
      raise(Error("[replay] " + operation.info->name + " cannot be repeated: " + describe(id, operation) + " (" +
                  std::to_string(tape_.values[id].bytes) + " bytes) " + why_lost(id)));
    }
    raise(InternalError("[replay] value " + std::to_string(id) +
                        " has neither contents nor a producer; please report this"));
  }

  /// "a parameter of shape [4, 8]"
  std::string describe(ValueId id, const Operation& reader) const {
    std::string text = tape_.values[id].parameter ? "a parameter of shape [" : "an input of shape [";
    bool done = false;
    tape_.for_each_tensor(reader, [&](const TensorArgument& t, uint32_t) {
      if (t.value != id || done) return;
      done = true;
      for (const auto size : t.view.shape.sizes_arrayref())
        text += (text.back() == '[' ? "" : ", ") + std::to_string(size);
    });
    return text + "]";
  }

  /// More threads than a child was given may be more than it can have: OpenMP's do not survive a fork, and waiting for
  /// them has no end.
  void check_threads(const Operation& operation, const KernelSettings& settings) const {
    const int threads = KernelSettings::current(/*products=*/false).threads;
    if (!tape_.inherited || settings.threads <= threads) return;
    raise(Error("[replay] " + operation.info->name + " cannot be repeated: it ran on " +
                std::to_string(settings.threads) +
                " threads in the process that this one was forked from, and there may be " + std::to_string(threads) +
                " here; call backward before the fork, or run the forward pass on as few threads"));
  }

  void run_operation(OperationId id) {
    hold_inputs(id);
    // A copy: while the operator runs, another thread may let the arrays grow.
    Operation operation;
    torch::jit::Stack stack;
    std::vector<StoragePtr> written;
    GeneratorRecord generator;
    KernelSettings settings;
    std::array<at::Tensor, 2> statistics;
    bool shortcut = false;
    {
      const std::lock_guard lock(tape_.mutex);
      operation = tape_.operations[id];
      settings = tape_.settings[operation.settings];
      check_threads(operation, settings);
      tape_.for_each_tensor(operation, [&](const TensorArgument& t, uint32_t) {
        if (t.value != kNone) check_input(t, held_.at(t.value).storage, operation);
      });
      build_stack(operation, stack, written);
      if (operation.generator != kNone) generator = tape_.generators[operation.generator];
      shortcut = operation.info->batch_norm && find_statistics(operation, statistics);
    }
    const auto begin = std::chrono::steady_clock::now();
    {
      // A user's kernel at autograd's keys may do more than call the one below. (No graph is made: nothing that a
      // replay passes needs a gradient.)
      std::optional<at::AutoDispatchBelowADInplaceOrView> below_autograd;
      if (!operation.info->own_autograd) below_autograd.emplace();
      const AutocastScope autocast(settings.autocast);
      const c10::impl::ExcludeDispatchKeyGuard no_modes(settings.autocast.any() ? kModeKeys - kAutocastKeys
                                                                                : kModeKeys);
      const KernelSettingsScope settings_of_then(settings);
      const c10::AutoGradMode grad_mode(operation.grad_mode);
      std::optional<GeneratorRestorer> restorer;
      if (generator.state.defined()) restorer.emplace(generator);
      if (!shortcut || !repeat_batch_norm(stack, statistics[0], statistics[1])) operation.info->handle.callBoxed(stack);
      if (restorer && !restorer->has_drawn_the_same()) {
        raise(Error("[replay] " + operation.info->name +
                    " drew other random numbers than in the forward pass: another thread used the same generator "
                    "meanwhile, or the operator does not repeat; give threads generators of their own"));
      }
    }
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const std::lock_guard lock(tape_.mutex);
    ++tape_.operations[id].replays;
    ++tape_.replays;
    tape_.replay_seconds += seconds;
    ReplayCost& cost = tape_.replayed[operation.info];
    ++cost.count;
    cost.seconds += seconds;
    take_results(operation, stack, written);
    stack.clear();
    tape_.for_each_tensor(operation, [&](const TensorArgument& t, uint32_t) {
      if (t.value != kNone) use_once(t.value);
    });
  }

  /// Mean and inverse deviation of a batch normalization in training, if it still has them.
  bool find_statistics(const Operation& operation, std::array<at::Tensor, 2>& statistics) const {
    if (operation.value_count != 3) return false;
    for (uint32_t i = 0; i < 2; ++i) {
      const ValueId id = operation.first_value + 1 + i;
      const StoragePtr storage = tape_.readable(id);
      if (!storage || tape_.values[id].result != i + 1) return false;
      const int64_t channels = tape_.values[id].bytes / static_cast<int64_t>(sizeof(float));
      statistics[i] = at::from_blob(
          storage->mutable_data(), {channels}, [storage](void*) {}, at::kFloat);
    }
    return true;
  }

  void use_once(ValueId id) {
    const auto entry = held_.find(id);
    if (entry == held_.end()) return;
    if (--entry->second.uses == 0) {
      --tape_.values[id].wanted;
      held_.erase(entry);
    } else if (tape_.values[id].kept && tape_.values[id].kept == entry->second.storage) {
      entry->second.storage.reset();
    }
  }

  void build_stack(const Operation& operation, torch::jit::Stack& stack, std::vector<StoragePtr>& written) {
    // First what is written to: an argument that reads the same storage has to see the writes.
    ska::flat_hash_map<ValueId, StoragePtr> rewritten;
    tape_.for_each_tensor(operation, [&](const TensorArgument& t, uint32_t a) {
      if (!operation.info->writes(a - operation.first_argument)) return;
      if (t.blank) written.push_back(empty_storage(t.view));
      if (t.value == kNone) return;
      auto [entry, first] = rewritten.emplace(t.value, StoragePtr());
      if (first) entry->second = to_write(held_.at(t.value));
      written.push_back(entry->second);
    });
    size_t blanks = 0;
    const auto build = [&](const TensorArgument& t) {
      if (t.blank) {
        while (written[blanks]->nbytes() > 0) ++blanks;  // those that stand for values come with contents
        return t.view.over(written[blanks++]);
      }
      if (t.value == kNone) return t.opaque == kNone ? at::Tensor() : build_opaque(t, *operation.info);
      const auto entry = rewritten.find(t.value);
      return t.view.over(entry != rewritten.end() ? entry->second : held_.at(t.value).storage);
    };
    for (uint32_t a = operation.first_argument; a < operation.first_argument + operation.argument_count; ++a) {
      stack.push_back(build_argument(tape_.arguments[a], build));
    }
  }

  at::Tensor build_opaque(const TensorArgument& argument, const OperatorInfo& info) const {
    const at::Tensor& tensor = tape_.opaque[argument.opaque];
    const bool same_version = tensor._version() == argument.version;
    if (same_version && argument.checksum == checksum_of_parts(tensor)) return tensor;
    raise(Error("[replay] " + info.name + " cannot be repeated: an input of type " + tensor.toString() +
                " was modified in place after the forward pass read it (" +
                (same_version
                     ? "in a tensor that it shares its values or indices with"
                     : "version " + std::to_string(argument.version) + ", now " + std::to_string(tensor._version())) +
                "); modify it after backward"));
  }

  template <class Build>
  c10::IValue build_argument(const Argument& argument, Build&& build) {
    switch (argument.kind) {
      case Argument::Kind::kConstant:
        return tape_.constants[argument.first];
      case Argument::Kind::kTensor: {
        at::Tensor tensor = build(tape_.tensors[argument.first]);
        return tensor.defined() ? c10::IValue(std::move(tensor)) : c10::IValue();
      }
      case Argument::Kind::kTensorList: {
        c10::List<at::Tensor> list;
        for (uint32_t i = 0; i < argument.count; ++i) list.push_back(build(tape_.tensors[argument.first + i]));
        return list;
      }
      case Argument::Kind::kOptionalTensorList: {
        c10::List<std::optional<at::Tensor>> list;
        for (uint32_t i = 0; i < argument.count; ++i) {
          at::Tensor tensor = build(tape_.tensors[argument.first + i]);
          list.push_back(tensor.defined() ? std::optional<at::Tensor>(std::move(tensor)) : std::nullopt);
        }
        return list;
      }
      case Argument::Kind::kStatistics:
        break;
    }
    if (argument.count == 0) return {};
    const c10::TensorImpl& statistics = *tape_.opaque[tape_.tensors[argument.first].opaque].unsafeGetTensorImpl();
    return TensorView(statistics).over(copy_of(*storage_of(statistics)));
  }

  static StoragePtr empty_storage(const TensorView& view) {
    c10::Allocator* const allocator =
        c10::GetAllocator(view.keys.has_backend(c10::BackendComponent::CUDABit) ? c10::kCUDA : c10::kCPU);
    return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0, allocator, /*resizable=*/true);
  }

  /// The storage for an in-place operator: a copy of the whole old one, or the old one itself if this replay made it
  /// and nobody will read the old contents any more.
  static StoragePtr to_write(Held& held) {
    const bool last_use = held.uses == 1 && held.storage.use_count() == 1;
    return last_use ? std::move(held.storage) : copy_of(*held.storage);
  }

  void take_results(const Operation& operation, const torch::jit::Stack& outputs,
                    const std::vector<StoragePtr>& written) {
    std::vector<StoragePtr> results;
    for_each_result(outputs, [&](const at::Tensor& t) {
      results.push_back(t.defined() ? StoragePtr::reclaim_copy(storage_of(t)) : StoragePtr());
    });
    for (ValueId id = operation.first_value; id < operation.first_value + operation.value_count; ++id) {
      Value& value = tape_.values[id];
      if (value.producer == kNone) continue;  // let go of since
      const size_t index = value.result >= kWritten ? value.result - kWritten : value.result;
      const auto& source = value.result >= kWritten ? written : results;
      if (index >= source.size() || !source[index] || static_cast<int64_t>(source[index]->nbytes()) != value.bytes) {
        raise(InternalError("[replay] " + operation.info->name +
                            " gave a result of another size than before; please report this"));
      }
      tape_.replayed[operation.info].bytes += value.bytes;
      take(id, source[index], *operation.info);
    }
  }

  void take(ValueId id, const StoragePtr& storage, const OperatorInfo& info) {
    Value& value = tape_.values[id];
    if (value.checksum != 0 && checksum(*storage, {0, value.extent}) != value.checksum) {
      const std::string found = "[replay] " + info.name + " gave other bits than before: ";
      if (tape_.verify && !value.handed_out) {
        raise(InternalError(found + "it is not repeatable here (please report this), or its result was written to "
                                    "through a pointer"));
      }
      raise(Error(found + "its result was written to through a pointer (such as .numpy() gives) or .data after the "
                          "forward pass made it; modify it after backward, or mark it with keep()"));
    }
    const auto entry = held_.find(id);
    const bool needed = entry != held_.end();
    const bool emptied = tape_.emptied(id) != nullptr;  // saved tensors see what is there, replays what was
    const StoragePtr alive = tape_.alive(id);
    if (id == target_) result_ = alive ? alive : storage;
    if (emptied || alive) {
      if (needed && !tape_.readable(id)) entry->second.storage = storage;
      return;
    }
    ++value.made;
    if ((value.pending > 0 && value.action.holds(value.made)) || id == target_) {
      tape_.rehome(id, storage);
      if (value.saved > 0) {
        value.extra = !value.absent;  // overwritten since: in plain its bytes are those of the value that came after
        value.absent = false;
        value.kept = storage;  // until it has been asked for, or memory runs short
        return;
      }
    }
    if (needed) entry->second.storage = storage;
  }

  Tape& tape_;
  const ValueId target_;
  bool started_ = false;
  StoragePtr result_;  ///< the target's: held, so that no other thread's want of memory takes it away
  std::vector<OperationId> operations_;
  ska::flat_hash_map<ValueId, Held> held_;
};

}  // namespace

StoragePtr materialize(Tape& tape, ValueId value) { return Replay(tape, value).run(); }

}  // namespace remat
