// tests/support/recording.h -- records what runs while it lives, without a session.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "observe/recorder.h"
#include "observe/tapes.h"
#include "replay/saved_tensor.h"

namespace remat::test {

class Recording {
 public:
  Recording() {
    install_saved_tensors();
    Recorder::start(tape_);
  }
  ~Recording() { Recorder::stop(); }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  const std::shared_ptr<Tape>& shared() const { return tape_; }
  Tape& tape() const { return *tape_; }
  /// Of the operators, without overload.
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& operation : tape_->program) {
      if (operation.info != nullptr) result.push_back(operation.info->base_name());
    }
    return result;
  }
  ValueId id_of(const at::Tensor& tensor) const { return tape_->values.find(storage_of(tensor)); }
  const Value& value_of(const at::Tensor& tensor) const { return tape_->values[id_of(tensor)]; }

 private:
  std::shared_ptr<Tape> tape_ = Tapes::all().make();
};

}  // namespace remat::test
