#include <memory>
#include <optional>

#include <remat/error.h>
#include <remat/extension.h>
#include <remat/optimizer_in_backward.h>
#include <remat/policy.h>

#include "module.h"

namespace remat::python {
namespace {

/// A PolicyScope that begins and ends when it is told to.
class Scope {
 public:
  explicit Scope(Policy policy) : policy_(std::move(policy)) {}
  void begin() {
    if (scope_) throw Error("[policy] this scope has begun already; use another one inside it");
    scope_ = std::make_unique<PolicyScope>(policy_);
  }
  void end() { scope_.reset(); }

 private:
  Policy policy_;
  std::unique_ptr<PolicyScope> scope_;
};

/// A ParameterUpdate that ends when it is told to.
class Update {
 public:
  void end() { update_.reset(); }

 private:
  std::optional<ParameterUpdate> update_{std::in_place};
};

}  // namespace

void bind_scopes(py::module_& m) {
  py::class_<Policy>(m, "Policy")
      .def_static("keep_all", &Policy::keep_all)
      .def_static("drop_all", &Policy::drop_all)
      .def_static("keep_compute", &Policy::keep_compute)
      .def_static("keep_operators", &Policy::keep_operators);
  py::class_<Scope>(m, "Scope")
      .def(py::init<Policy>())
      .def("begin", &Scope::begin, py::call_guard<py::gil_scoped_release>())
      .def("end", &Scope::end, py::call_guard<py::gil_scoped_release>());
  py::class_<Update>(m, "ParameterUpdate").def(py::init<>()).def("end", &Update::end);
  m.def("is_in_nested_backward", &ParameterUpdate::is_in_nested_backward);
  m.def("keep", &keep);
  py::class_<extension::OpaqueRegion>(m, "OpaqueRegion").def(py::init<>()).def("end", &extension::OpaqueRegion::end);
  py::class_<extension::CompiledRegion>(m, "CompiledRegion")
      .def(py::init<>())
      .def("end", &extension::CompiledRegion::end);
  m.def("note_compilation", &extension::note_compilation);
  m.def("is_recording", &extension::is_recording);
  m.def("recorded_operators", &extension::recorded_operators, py::call_guard<py::gil_scoped_release>());
  m.def("is_watching_operators", &extension::is_watching_operators);
}

}  // namespace remat::python
