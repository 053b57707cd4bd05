// remat/operators.h -- what users know of their own operators, and PyTorch does not say.
//
// remat runs an operator again only where that gives the same bits. PyTorch's own operators are known. Of a registered
// operator that is not PyTorch's (TORCH_LIBRARY, torch.library), remat believes the schema as long as its first four
// calls agree: the inputs that the schema does not say to be written to have the same contents afterwards, and the
// results share no memory with them. An operator that contradicts its schema is never run again from then on, and
// neither are operators that are Python functions, or those of collective communication (c10d, fsdp, ...): what they
// give is held. A replay runs within backward, on the thread that calls it: a kernel must not take a lock that this
// thread holds then. Nothing but SessionOptions::verify finds an operator that is believed and does not repeat.
//
// The functions below overrule that for one operator. They hold for the whole process, from the next call of the
// operator on. `name`: "mylib::gate" names every overload, "mylib::gate.out" one. They throw Error for a name that no
// registered operator has, and for a composite (CompositeImplicitAutograd, views): its parts are recorded by
// themselves. Thread-safe.
#pragma once

#include <string>

namespace remat {

/// A call with the same arguments and generator states gives the same bits, and writes to nothing but the tensors that
/// its schema marks so: replays may run it, also where it is a Python function. Its first calls are looked at all the
/// same. Throws Error for collective communication.
void declare_repeatable(const std::string& name);

/// No replay may run it: what it gives is held. `writes_arguments`: it may also write to any tensor that it is given,
/// during the call or later (communication that is still in progress), and its schema does not say so; replays then see
/// what was in them before.
void declare_not_repeatable(const std::string& name, bool writes_arguments = false);

}  // namespace remat
