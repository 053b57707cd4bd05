#include "replay/repeatability.h"

#include <remat/support/number_text.h>
#include "pytorch/raise.h"
#include "tape/checksum.h"
#include "tape/read_checksum.h"

namespace remat {
namespace {

/// "a parameter of shape [4, 8]"
std::string describe(const Tape& tape, ValueId id, const Operation& reader) {
  std::string text = tape.values[id].traits.parameter ? "a parameter of shape " : "an input of shape ";
  bool done = false;
  tape.program.for_each_tensor(reader, [&](const TensorArgument& t, uint32_t) {
    if (t.value != id || done) return;
    done = true;
    text += support::list_text(t.view.shape.sizes_arrayref());
  });
  return text;
}

/// Why the contents of a leaf cannot be read, and what to do about it.
std::string why_lost(const Tape& tape, ValueId id) {
  const Value& value = tape.values[id];
  if (tape.values.emptied(id) || value.home.loss == Loss::kEmptied) {
    const std::string emptied =
        "was emptied after the forward pass read it (its storage was resized or given other memory), and does not have "
        "the same contents now; fill it again before backward, or empty it after backward";
    // Of older memory nobody is told when it ends, so its contents cannot be compared.
    return value.home.last_contents != nullptr || value.home.allocation.serial != 0
               ? emptied
               : emptied +
                     ", or call remat.memory.start_accounting() before the first forward pass: the memory is older "
                     "than remat's accounts";
  }
  if (value.home.loss == Loss::kWrittenUnseen) {
    return "was modified in place after the forward pass read it, in a way that remat does not see (on another "
           "thread, or in a kernel of the user's); modify it after backward, or by an operator on the step's thread";
  }
  return "was overwritten after the forward pass read it and there was no room for a copy; modify it after backward, "
         "or raise the budget";
}

}  // namespace

void check_input(Tape& tape, const TensorArgument& argument, const StoragePtr& contents, const Operation& reader) {
  const Value& value = tape.values[argument.value];
  const bool counted = value.producer == kNoId && value.is_written_unseen();
  const auto message = [&] {
    return "[replay] " + reader.info->name + " cannot be repeated: " + describe(tape, argument.value, reader) +
           " was modified in place after " +
           (value.producer == kNoId ? "the forward pass read it (" : "the operator that made it had run (") +
           (counted ? "version " + std::to_string(value.watch.version) + ", now " +
                          std::to_string(value.watch.counter.current_version())
                    : "through a pointer or .data") +
           "); modify it after backward, or inside the step by an operator that remat sees" +
           (counted ? "; use a parameter that backward updates (optimizer_in_backward) without detach()"
                    : "; or what made it gives other bits at every call: declare_not_repeatable()");
  };
  const auto argument_differs = [&] {
    if (argument.checksum == 0) return false;
    const at::Tensor tensor = argument.view.over(contents);
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    if (!tape.values.checksums.differ(argument.checksum, *contents, reach_of(impl), message)) return false;
    forget_constant(impl);
    return true;
  };
  const auto value_differs = [&] {
    if (value.watch.checksum == 0 || value.watch.checksum == argument.checksum) return false;  // compared with that
    return tape.values.checksums.differ(value.watch.checksum, *contents, {0, value.extent}, message);
  };
  if (counted || argument_differs() || value_differs()) raise(Error(message()));
}

void check_opaque(const at::Tensor& tensor, const TensorArgument& argument, const OperatorInfo& reader) {
  const bool same_version = tensor._version() == argument.version;
  if (same_version && argument.checksum == checksum_of_parts(tensor)) return;
  raise(Error("[replay] " + reader.name + " cannot be repeated: an input of type " + tensor.toString() +
              " was modified in place after the forward pass read it (" +
              (same_version
                   ? "in a tensor that it shares its values or indices with"
                   : "version " + std::to_string(argument.version) + ", now " + std::to_string(tensor._version())) +
              "); modify it after backward"));
}

void check_threads(const Tape& tape, const Operation& operation, const KernelSettings& settings) {
  const int threads = ThreadCounts::current(/*products=*/false).kernels;
  if (!tape.inherited || settings.threads.kernels <= threads) return;
  raise(Error("[replay] " + operation.info->name + " cannot be repeated: it ran on " +
              std::to_string(settings.threads.kernels) +
              " threads in the process that this one was forked from, and there may be " + std::to_string(threads) +
              " here; call backward before the fork, or run the forward pass on as few threads"));
}

void refuse_lost(const Tape& tape, ValueId id) {
  for (const auto& operation : tape.program) {
    if (operation.info == nullptr) continue;
    bool reads = false;
    tape.program.for_each_value(operation, [&](ValueId input) { reads = reads || input == id; });
    if (!reads) continue;
    raise(Error("[replay] " + operation.info->name + " cannot be repeated: " + describe(tape, id, operation) + " (" +
                std::to_string(tape.values[id].bytes) + " bytes) " + why_lost(tape, id)));
  }
  raise(InternalError("[replay] value " + std::to_string(id) +
                      " has neither contents nor a producer; please report this"));
}

void refuse_distrusted(const OperatorInfo& info) {
  const char* const why = info.contradicted ? "a later call wrote to an input, or gave back memory of one, and its "
                                              "schema does not say so"
                          : info.varies     ? "a replay of it gave other bits on this device"
                                            : "it was declared not repeatable after this call";
  raise(Error("[replay] " + info.name + " cannot be repeated: " + why +
              "; run the step again, now its results are held"));
}

void refuse_replaced(const OperatorInfo& info) {
  raise(
      Error("[replay] " + info.name +
            " cannot be repeated: since the forward pass ran it, a kernel of it, or of an operator that it calls, was "
            "registered or removed, or that operator was declared not repeatable; do that between two steps"));
}

}  // namespace remat
