#include <remat/state_pager.h>

#include "module.h"

namespace remat::python {

void bind_state_pager(py::module_& m) {
  const auto without_lock = py::call_guard<py::gil_scoped_release>();
  py::class_<PagedState, std::shared_ptr<PagedState>>(m, "PagedState")
      .def_static("can_store", &PagedState::can_store)
      .def("store", &PagedState::store, without_lock)
      .def("fetch", &PagedState::fetch, without_lock)
      .def("give_back", &PagedState::give_back, without_lock)
      .def("read", &PagedState::read, without_lock);
  py::class_<PagingReport>(m, "PagingReport")
      .def_readonly("written_bytes", &PagingReport::written_bytes)
      .def_readonly("read_bytes", &PagingReport::read_bytes)
      .def_readonly("write_seconds", &PagingReport::write_seconds)
      .def_readonly("read_seconds", &PagingReport::read_seconds)
      .def_readonly("waited_seconds", &PagingReport::waited_seconds)
      .def_readonly("file_bytes", &PagingReport::file_bytes)
      .def_readonly("paged_bytes", &PagingReport::paged_bytes)
      .def_readonly("unwritten_bytes", &PagingReport::unwritten_bytes);
  py::class_<StatePager>(m, "StatePager")
      .def(py::init<const std::string&, int64_t>(), without_lock, py::arg("directory"),
           py::arg("limit_bytes") = StatePager::kNoLimit)
      .def("add", &StatePager::add, without_lock)
      .def("end_round", &StatePager::end_round, without_lock)
      .def("take_failure", &StatePager::take_failure, without_lock)
      .def("report", &StatePager::report, without_lock);
}

}  // namespace remat::python
