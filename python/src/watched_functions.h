// python/src/watched_functions.h -- functions of PyTorch's in C that tell remat before they run.
//
// Whoever has a reference to such a function, as by `from torch.utils.dlpack import to_dlpack` before remat was
// imported, calls it past any name in a module or class. So the function pointer behind the object is exchanged, once
// in the life of the process: it is read from the method table at each call.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace remat::python {

/// From now on `function`, a built-in function or a method descriptor whose first argument (or self) is a tensor, calls
/// `tell(tensor)` before it runs, where anything is recorded. Not again where it does already. Throws Error where it is
/// neither, or there are too many. REQUIRES the GIL.
void watch_function(const py::object& function, const py::object& tell);

}  // namespace remat::python
