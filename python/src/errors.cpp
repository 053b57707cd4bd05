#include <optional>
#include <string>
#include <utility>

#include <remat/error.h>
#include <remat/extension.h>
#include <torch/csrc/Exceptions.h>

#include "module.h"

namespace remat::python {
namespace {

/// The classes of remat/errors.py; they live as long as the process.
struct Types {
  PyObject* error = PyExc_RuntimeError;
  PyObject* budget_error = PyExc_RuntimeError;
  PyObject* internal_error = PyExc_RuntimeError;
};
Types g_types;

struct Figures {
  std::string message;
  int64_t budget_bytes = 0, lower_bound_bytes = 0;
  std::optional<int64_t> smallest_known_bytes;
  int64_t needed_bytes = 0;
  std::optional<double> needed_percent;
};
/// Of the last BudgetError that became a Python exception on this thread: PyTorch takes a type and a message alone.
thread_local Figures t_figures;
/// Of the last BudgetError on this thread, until it becomes a Python exception. A caller in C may lose it on the way.
thread_local std::optional<Figures> t_on_its_way;

/// What PyTorch's bindings turn into the Python exception that python_type() names. Thrown where the interpreter may
/// not be touched: nothing of Python is made before python_type() is asked for, with the interpreter's lock held.
class TranslatedError final : public torch::PyTorchError {
 public:
  explicit TranslatedError(const std::exception& error) : torch::PyTorchError(error.what()) {
    if (const auto* const budget = dynamic_cast<const BudgetError*>(&error)) {
      figures_ = {msg,
                  budget->budget_bytes(),
                  budget->lower_bound_bytes(),
                  budget->smallest_known_bytes(),
                  budget->needed_bytes(),
                  budget->needed_percent()};
      t_on_its_way = figures_;
    }
    internal_ = dynamic_cast<const InternalError*>(&error) != nullptr;
  }

  PyObject* python_type() override {
    if (internal_) return g_types.internal_error;
    if (!figures_) return g_types.error;
    t_figures = *figures_;
    t_on_its_way.reset();
    return g_types.budget_error;
  }

 private:
  std::optional<Figures> figures_;
  bool internal_ = false;
  extension::ErrorInFlight in_flight_;
};

[[noreturn]] void throw_translated(const std::exception& error) { throw TranslatedError(error); }

/// The message of a BudgetError that did not become a Python exception, once.
std::optional<std::string> lost_budget_error() {
  const auto lost = std::exchange(t_on_its_way, std::nullopt);
  if (!lost) return std::nullopt;
  t_figures = *lost;
  return lost->message;
}

void set_python_error(TranslatedError error) { PyErr_SetString(error.python_type(), error.what()); }

/// For what leaves the functions of this module, and those of PyTorch that are bound by pybind11 too (TorchScript's).
void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const TranslatedError& error) {
    set_python_error(error);
  } catch (const Error& error) {
    set_python_error(TranslatedError(error));
  } catch (const InternalError& error) {
    set_python_error(TranslatedError(error));
  }
}

}  // namespace

void bind_errors(py::module_& m) {
  extension::set_error_translator(throw_translated);
  py::register_exception_translator(translate);
  m.def("set_error_types", [](const py::object& error, const py::object& budget_error, const py::object& internal) {
    g_types = {error.inc_ref().ptr(), budget_error.inc_ref().ptr(), internal.inc_ref().ptr()};
  });
  m.def("lost_budget_error", &lost_budget_error);
  m.def("budget_figures", [](const std::string& message) -> py::object {
    if (message != t_figures.message) return py::none();
    return py::make_tuple(t_figures.budget_bytes, t_figures.lower_bound_bytes, t_figures.smallest_known_bytes,
                          t_figures.needed_bytes, t_figures.needed_percent);
  });
}

}  // namespace remat::python
