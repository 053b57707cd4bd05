// src/tape/held_contents.h -- what holds a value's contents in place of its tensor.
#pragma once

#include <cstdint>

#include <c10/core/StorageImpl.h>
#include <remat/plan.h>

namespace remat {

/// Packed and Moved. Protected by the tape's mutex, where they do not say otherwise.
class HeldContents {
 public:
  virtual ~HeldContents() = default;
  HeldContents(const HeldContents&) = delete;
  HeldContents& operator=(const HeldContents&) = delete;

  Form form() const { return form_; }
  /// Bytes of the step's memory that it takes.
  virtual int64_t bytes() const = 0;

 protected:
  explicit HeldContents(Form form) : form_(form) {}

 private:
  const Form form_;
};

}  // namespace remat
