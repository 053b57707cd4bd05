// cli/gloo_group.h -- a process group of c10d whose processes are connected by Gloo, whose headers this file needs.
#pragma once

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "cli/device.h"

namespace remat::cli {

/// `name`: groups of one store have different ones. Blocks until all `size` ranks have called it.
inline c10::intrusive_ptr<c10d::ProcessGroup> make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                              int size, const std::string& name) {
  const c10::intrusive_ptr<c10d::Store> own = c10::make_intrusive<c10d::PrefixStore>("remat/" + name, store);
  auto options = c10d::ProcessGroupGloo::Options::create();
  // A process that has ended is seen by its closed connections; one may wait long for a terminal or a disk.
  options->timeout = std::chrono::hours(24);
  options->devices.push_back(c10d::ProcessGroupGloo::createDefaultDevice(/*lazyInit=*/false));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(own, rank, size);
  group->setBackend(kDevice, c10d::ProcessGroup::BackendType::GLOO,
                    c10::make_intrusive<c10d::ProcessGroupGloo>(own, rank, size, options));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return group;
}

}  // namespace remat::cli
