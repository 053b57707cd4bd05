#include <remat/extension.h>
#include <remat/session.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remat/error.h>
#include <remat/plan.h>
#include <remat/planner.h>
#include <remat/pool.h>
#include <remat/run.h>
#include <torch/csrc/Exceptions.h>

#include "module.h"

namespace remat::python {
namespace {

using WithoutLock = py::call_guard<py::gil_scoped_release>;

/// Calls `function`; what it warns of through PyTorch becomes warnings of Python, or their exceptions.
template <class Function>
auto with_warnings(Function function) {
  torch::PyWarningHandler handler;
  try {
    return function();
  } catch (...) {
    handler.set_in_exception();
    throw;
  }
}

void bind_plan(py::module_& m) {
  py::class_<Plan>(m, "Plan")
      .def_readonly("planner", &Plan::planner)
      .def_readonly("budget_bytes", &Plan::budget_bytes)
      .def_readonly("predicted_peak_bytes", &Plan::predicted_peak_bytes)
      .def_readonly("predicted_seconds", &Plan::predicted_seconds)
      .def("to_json", [](const Plan& plan) { return to_json(plan); })
      .def_static("from_json", [](const std::string& text) { return plan_from_json(text); });
  m.def(
      "make_plan",
      [](const std::string& graph, int64_t budget_bytes, const std::string& planner, bool refine, bool pack) {
        return make_plan(graph_from_json(graph), budget_bytes, planner, {.pack = pack, .refine = refine});
      },
      WithoutLock());
  m.def("plain_peak_bytes", [](const std::string& graph) { return graph_from_json(graph).plain_peak_bytes(); });
  m.def("check_graph", [](const std::string& graph) { graph_from_json(graph); });
  py::class_<Run>(m, "Run")
      .def(py::init([](std::string name, const std::string& graph, std::optional<Plan> plan,
                       const std::optional<std::string>& report, std::vector<std::string> layers) {
        const py::gil_scoped_release unlocked;
        Run run{.name = std::move(name),
                .graph = graph_from_json(graph),
                .plan = std::move(plan),
                .report = std::nullopt,
                .layers = std::move(layers)};
        if (report) run.report = report_from_json(*report);
        if (const std::string wrong = run.problem(); !wrong.empty()) throw Error("[report] " + wrong);
        return run;
      }))
      .def(
          "to_json", [](const Run& run) { return to_json(run); }, WithoutLock())
      .def(
          "to_html", [](const Run& run) { return to_html(run); }, WithoutLock())
      .def(
          "to_svg", [](const Run& run) { return to_svg(run); }, WithoutLock())
      .def(
          "to_text", [](const Run& run) { return to_text(run); }, WithoutLock())
      .def(
          "to_trace", [](const Run& run) { return to_trace(run); }, WithoutLock());
  m.def(
      "plan_curve",
      [](const std::string& graph, const std::vector<int64_t>& budgets) {
        return plan_curve(graph_from_json(graph), budgets);
      },
      WithoutLock());
  m.def(
      "smallest_online_budget", [](const std::string& graph) { return smallest_online_budget(graph_from_json(graph)); },
      WithoutLock());
  m.def("list_planners", [] {
    py::dict result;
    for (const PlannerInfo& info : list_planners()) {
      result[py::str(std::string(info.name))] = py::str(std::string(info.description));
    }
    return result;
  });
}

/// For threads that need not have the interpreter's lock: they may copy and destroy it.
std::function<bool()> called_on_any_thread(py::function goes_on) {
  const std::shared_ptr<py::function> shared(new py::function(std::move(goes_on)), delete_on_any_thread<py::function>);
  return [shared] {
    const py::gil_scoped_acquire lock;
    try {
      return (*shared)().cast<bool>();
    } catch (const std::exception&) {  // nobody here to be told: then the call goes on
      return true;
    }
  };
}

}  // namespace

void bind_session(py::module_& m) {
  bind_plan(m);
  py::class_<Budget>(m, "Budget")
      .def(py::init<>())
      .def_static("bytes", &Budget::bytes)
      .def_static("parse", [](const std::string& text) { return Budget::parse(text); })
      .def_property_readonly("byte_count", &Budget::byte_count)
      .def_property_readonly("share", &Budget::share)
      .def_property_readonly("is_pressure",
                             [](const Budget& budget) { return budget.kind() == Budget::Kind::kPressure; })
      .def("__str__", &Budget::to_string);

  py::class_<Pool>(m, "Pool")
      .def(py::init<const Budget&>())
      .def_property_readonly("budget", [](const Pool& pool) { return Budget(pool); })
      .def_property_readonly("bytes", &Pool::bytes)
      .def("running", &Pool::running, WithoutLock())
      .def("waiting", &Pool::waiting, WithoutLock());

  py::class_<StepReport>(m, "StepReport")
      .def_readonly("step", &StepReport::step)
      .def_readonly("completed", &StepReport::completed)
      .def_readonly("budget_bytes", &StepReport::budget_bytes)
      .def_readonly("step_seconds", &StepReport::step_seconds)
      .def_readonly("planning_seconds", &StepReport::planning_seconds)
      .def("to_json", [](const StepReport& report) { return to_json(report); })
      .def("__str__", [](const StepReport& report) { return to_text(report); });

  // Their destructors wait: for other ranks, and for a search.
  using DestroyedWithoutLock = py::release_gil_before_calling_cpp_dtor;
  py::class_<Step>(m, "Step", DestroyedWithoutLock())
      .def("end",
           [](Step& step, bool completed) {
             with_warnings([&] {
               const py::gil_scoped_release unlocked;
               return step.end(completed).step;
             });
           })
      .def("enter_forward",
           [](Step& step, py::function goes_on) {
             extension::CalledStep(step).enter_forward(called_on_any_thread(std::move(goes_on)));
           })
      .def("leave_forward", [](Step& step) { extension::CalledStep(step).leave_forward(); })
      .def("backward_passes", [](const Step& step) { return extension::CalledStep(step).backward_passes(); })
      .def(
          "hold_under",
          [](Step& step, int64_t bytes, const std::string& name) {
            extension::CalledStep(step).hold_under(bytes, name);
          },
          WithoutLock())
      .def("has_ended", &Step::has_ended)
      .def("was_refused", [](const Step& step) { return extension::CalledStep(step).was_refused(); })
      .def("live_values", &Step::live_values, WithoutLock());

  py::class_<Session>(m, "Session", DestroyedWithoutLock())
      .def(py::init([](const Budget& budget, c10::Device device, std::string planner, std::optional<Plan> plan,
                       bool pack, bool verify, std::string name, const std::optional<std::string>& disk,
                       std::optional<int64_t> host, std::optional<c10::intrusive_ptr<c10d::Backend>> connections) {
        std::optional<Ranks> ranks;
        if (connections) ranks = ranks_of(std::move(*connections));
        std::optional<Disk> room;
        if (disk) room = Disk::parse(*disk);
        std::optional<Budget> host_memory;
        if (host) host_memory = Budget::bytes(*host);
        return with_warnings([&] {
          const py::gil_scoped_release unlocked;
          return std::make_unique<Session>(SessionOptions{.budget = budget,
                                                          .device = device,
                                                          .verify = verify,
                                                          .pack = pack,
                                                          .planner = std::move(planner),
                                                          .name = std::move(name),
                                                          .plan = std::move(plan),
                                                          .ranks = std::move(ranks),
                                                          .disk = std::move(room),
                                                          .host = std::move(host_memory)});
        });
      }))
      .def("step",
           [](Session& session, std::optional<py::function> goes_on) {
             Step step = [&] {
               const py::gil_scoped_release unlocked;
               return session.step();
             }();
             if (goes_on) extension::CalledStep(step).enter_forward(called_on_any_thread(std::move(*goes_on)));
             return step;
           })
      .def("set_budget", &Session::set_budget, WithoutLock())
      .def("report", [](const Session& session) { return session.report(); })
      .def("plan", [](const Session& session) { return session.plan(); })
      .def("save_plan", &Session::save_plan, WithoutLock())
      .def(
          "graph_json", [](const Session& session) { return to_json(session.graph()); }, WithoutLock())
      .def("min_budget_bytes", &Session::min_budget_bytes, WithoutLock())
      .def("budget_bytes", &Session::budget_bytes);
}

}  // namespace remat::python
