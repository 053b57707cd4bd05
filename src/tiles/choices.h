// src/tiles/choices.h -- what trials have chosen, by what it depends on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <remat/tiles.h>

#include "memory/fork.h"
#include "util/mutex.h"

namespace remat::tiles {

/// What the bits of a product depend on, beside the numbers.
using Circumstances = std::vector<int64_t>;

/// Of this process: threads, and the libraries and precisions that products are computed with.
Circumstances circumstances();
/// Sizes, strides, type and alignment.
void append(Circumstances& to, const at::Tensor& tensor);

/// Choices by circumstances. Thread-safe; never destroyed.
template <class Choice>
class Choices {
 public:
  Choices() { free_in_children(mutex_); }

  std::optional<Choice> find(const Circumstances& of) const {
    const MutexLock lock(mutex_);
    const auto found = choices_.find(of);
    if (found == choices_.end()) return std::nullopt;
    return found->second;
  }
  void add(const Circumstances& of, const Choice& choice) {
    const MutexLock lock(mutex_);
    choices_.insert_or_assign(of, choice);
  }

 private:
  mutable Mutex mutex_;
  std::map<Circumstances, Choice> choices_ REMAT_GUARDED_BY(mutex_);
};

/// See last_tile_choice().
void set_last_choice(TileChoice choice);

}  // namespace remat::tiles
