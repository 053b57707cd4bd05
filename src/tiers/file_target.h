// src/tiers/file_target.h -- values of the host that are moved to a file.
#pragma once

#include <memory>
#include <utility>

#include "tiers/move_target.h"
#include "tiers/spill_file.h"

namespace remat::tiers {

class FileTarget final : public MoveTarget {
 public:
  explicit FileTarget(std::shared_ptr<SpillFile> file) : file_(std::move(file)) {}

  bool takes(const c10::StorageImpl& storage) const override;
  std::shared_ptr<MovedContents> write(const StoragePtr& from, int64_t bytes) override;
  StoragePtr allocate(int64_t bytes) const override;
  std::string name() const override { return "the disk"; }

 private:
  const std::shared_ptr<SpillFile> file_;
};

}  // namespace remat::tiers
