// src/plan/eviction_choice.h -- which values to evict when memory runs short: prices, and the choice of the cheapest.
//
// The price of an eviction is the seconds that it adds to the replays to come, per byte that it frees. It adds the
// operators between the value and values that are alive, without operators that run anyway because of earlier
// evictions. (DTR, Kirisame et al. 2021, "Dynamic Tensor Rematerialization", arXiv 2006.09616, evicts by cost / (size *
// staleness), where the cost includes evicted neighbours. Here every value is needed exactly once more, in reverse
// order, so staleness says nothing in the forward pass, and the order of uses is known in the backward pass.)
//
// src/session/eviction.cpp evicts by these prices at run time, OnlineStep on the graph.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plan/form_costs.h"

namespace remat {

/// One way to free memory.
struct EvictionOption {
  enum class Kind : uint8_t {
    kDrop,        ///< drop the contents
    kPack,        ///< hold the contents packed instead
    kDropPacked,  ///< drop the packed form
    kMove,        ///< move the contents to a file
  };
  Kind kind = Kind::kDrop;
  uint32_t value = 0;
};

/// Of very many options, keeps every n-th, because each eviction prices all options again. `turn` says where counting
/// begins, and should vary between calls so that all values get their turn.
inline void thin_out(std::vector<EvictionOption>& options, uint64_t turn) {
  constexpr size_t kMostOptions = 256;
  const size_t stride = options.size() / kMostOptions;
  if (stride <= 1) return;
  size_t count = 0;
  for (size_t i = turn % stride; i < options.size(); i += stride) options[count++] = options[i];
  options.resize(count);
}

/// `View` numbers values and operators and describes them: is_alive(value) and is_in_form(value) say whether the
/// contents are in memory, and whether a form has them. bytes(value) and packed_bytes(value) are the sizes of the
/// contents and of their packed form, whether they exist or not. restore_seconds(value) are those of getting the
/// contents out of the form, move_seconds(value) those of moving them out and back. producer(value) is the operator
/// that makes the value, or kNoProducer; seconds(operator) are those of a replay; for_each_input(operator, f) calls
/// f(value) for each input. visit(operator) is a reference to a uint32_t that this class may change. evict(option) does
/// it, and returns the bytes freed; 0 where a value cannot be packed, or moved.
template <class View>
class EvictionChoice {
 public:
  static constexpr uint32_t kNoProducer = UINT32_MAX;

  /// `stamp`: no operator's visit() has this number.
  EvictionChoice(View& view, uint32_t stamp) : view_(view), paid_(stamp) {}

  /// `value` has been evicted: the operators that recompute it run anyway.
  void pay(uint32_t value) { walk(value, /*form_too=*/false); }

  /// Values that walks have come by so far: for bounds on the time that they take.
  int64_t work() const { return work_; }

  /// Evicts the cheapest of `options`, one after another, until `bytes` bytes are free or no option is left. Returns
  /// the bytes freed.
  int64_t evict(std::vector<EvictionOption> options, int64_t bytes) {
    int64_t freed = 0;
    while (freed < bytes && !options.empty()) {
      size_t best = 0;
      double best_price = 0;
      for (size_t i = 0; i < options.size(); ++i) {
        const double price = price_of(options[i]);
        if (i > 0 && price >= best_price) continue;
        best = i;
        best_price = price;
      }
      const EvictionOption chosen = options[best];
      freed += view_.evict(chosen);
      if (view_.is_alive(chosen.value)) {  // it could not be packed or moved, but may be dropped
        options.erase(options.begin() + static_cast<std::ptrdiff_t>(best));
        continue;
      }
      pay(chosen.value);
      std::erase_if(options, [&](const EvictionOption& option) { return option.value == chosen.value; });
    }
    return freed;
  }

 private:
  /// So that of values that cost nothing the larger goes first.
  static constexpr double kLeastSeconds = 1e-6;

  double price_of(const EvictionOption& option) {
    const int64_t bytes = view_.bytes(option.value);
    switch (option.kind) {
      case EvictionOption::Kind::kPack:
        return per_byte(packing_seconds(bytes), bytes - view_.packed_bytes(option.value));
      case EvictionOption::Kind::kDropPacked:
        return per_byte(added_seconds(option.value, /*form_too=*/true), view_.packed_bytes(option.value));
      case EvictionOption::Kind::kMove:
        return per_byte(view_.move_seconds(option.value), bytes);
      case EvictionOption::Kind::kDrop:
        break;
    }
    return per_byte(added_seconds(option.value, /*form_too=*/false), bytes);
  }

  static double per_byte(double seconds, int64_t freed) {
    return (seconds + kLeastSeconds) / static_cast<double>(std::max<int64_t>(1, freed));
  }

  double added_seconds(uint32_t value, bool form_too) {
    const double seconds = walk(value, form_too);
    for (const auto& [op, visit] : seen_) view_.visit(op) = visit;
    return seconds;
  }

  /// The seconds of the operators between `value` and values that are alive or in a form, without operators that are
  /// paid for; marks them as paid for. `form_too`: as if `value` were in no form.
  double walk(uint32_t value, bool form_too) {
    double seconds = 0;
    seen_.clear();
    stack_.assign(1, value);
    while (!stack_.empty()) {
      const uint32_t next = stack_.back();
      stack_.pop_back();
      ++work_;
      if (view_.is_in_form(next) && !(form_too && next == value)) {
        seconds += view_.restore_seconds(next);
        continue;
      }
      const uint32_t producer = view_.producer(next);
      if (producer == kNoProducer || view_.visit(producer) == paid_) continue;
      seen_.emplace_back(producer, view_.visit(producer));
      view_.visit(producer) = paid_;
      seconds += view_.seconds(producer);
      view_.for_each_input(producer, [&](uint32_t input) {
        ++work_;
        if (!view_.is_alive(input)) stack_.push_back(input);
      });
    }
    return seconds;
  }

  View& view_;
  const uint32_t paid_;  ///< the visit() of operators that run anyway
  int64_t work_ = 0;
  std::vector<uint32_t> stack_;
  std::vector<std::pair<uint32_t, uint32_t>> seen_;  ///< operators of the last walk, and their visit() before
};

}  // namespace remat
