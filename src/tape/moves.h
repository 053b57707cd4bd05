// src/tape/moves.h -- the values of one tape that are moved to other memory (tiers/move_target.h), and the order in
// which they go and come.
//
// Copies run while the step computes. Where the order (util/move_order.h) says that a value's bytes are gone, the step
// waits for its copy; from then on the other memory alone has the contents. What fails, or is found to be other than it
// was, is recomputed: values that a plan moves can be.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <remat/graph.h>

#include "tape/held_contents.h"
#include "tape/residency.h"
#include "tiers/move_target.h"
#include "util/move_order.h"

namespace remat {

/// Contents that the other memory has, or is about to have.
class Moved final : public HeldContents {
 public:
  /// `contents` are being written from `leaving`.
  Moved(std::shared_ptr<MoveOrder> order, ValueId id, std::shared_ptr<tiers::MovedContents> contents,
        StoragePtr leaving);
  ~Moved() override;

  int64_t bytes() const override { return coming_ ? static_cast<int64_t>(coming_->nbytes()) : 0; }
  /// Waits until the other memory has the contents. False: it will not.
  bool wait_written() { return contents_->wait_written(); }
  /// The memory that it was copied from is the record's alone.
  void let_go_of_source() { leaving_.reset(); }
  /// Begins to read the contents into `memory`, which nobody else uses until wait_read() has returned.
  void begin_read(StoragePtr memory);
  /// That memory; null: nothing is being read.
  const StoragePtr& coming() const { return coming_; }
  void forget_coming() { coming_.reset(); }
  /// False: the contents are lost. Without the tape's mutex.
  bool wait_read() { return contents_->wait_read(); }
  std::string error() const { return contents_->error(); }

 private:
  const std::shared_ptr<MoveOrder> order_;
  const ValueId id_;
  StoragePtr leaving_, coming_;
  std::shared_ptr<tiers::MovedContents> contents_;
};

/// Protected by the tape's mutex, but for is_waiting().
class Moves {
 public:
  /// `tier`: what copies to `target` and back take.
  Moves(std::shared_ptr<tiers::MoveTarget> target, const Tier& tier, Residency& values, StepCounts& counts);

  /// What the step waits for that needs contents of so many bytes out of memory, or back, at once.
  double seconds_out(int64_t bytes) const { return seconds(tier_.costs.out, bytes); }
  double seconds_in(int64_t bytes) const { return seconds(tier_.costs.in, bytes); }
  /// Is it large enough, and nowhere else?
  bool is_worth_moving(const Value& value) const {
    return value.bytes >= kLeastMoved && value.form.contents == nullptr;
  }
  /// Only the record holds `id`: begins to move it, and lets those go whose time has come. False, and nothing has
  /// happened, where it cannot be moved: somebody has a pointer to it.
  bool leave(ValueId id);
  /// Memory runs short: those that are leaving go now, the oldest first, until `bytes` are free. Returns the bytes that
  /// this freed.
  int64_t finish(int64_t bytes);
  /// The same of what is coming, which has to wait.
  int64_t send_back(int64_t bytes);
  /// Backward asks for `id`. True if it was leaving: then others are to come back.
  bool note_used(ValueId id);
  /// The next that is to come back, with its size in bytes; nothing: enough are coming, or none is away.
  std::optional<ValueId> next_coming() { return order_->next_coming(); }
  /// There is no memory for it.
  void defer(ValueId id) { order_->defer(id); }
  /// It comes into `memory`, if it still is to come.
  void begin_to_come(ValueId id, StoragePtr memory);
  /// It is asked for, and comes back now. Null where it is not moved any more.
  std::shared_ptr<Moved> take(ValueId id);
  /// A replay has made it: where it is coming, it need not.
  void note_made(ValueId id);
  /// New memory for contents to come back into. Throws what the allocator throws.
  StoragePtr allocate(int64_t bytes) const { return target_->allocate(bytes); }
  /// True while a thread that holds the tape's mutex waits for a copy: others may wait for it as long.
  bool is_waiting() const { return waiting_.load(std::memory_order_relaxed); }
  /// It could not be read: it has to be recomputed.
  void give_up(ValueId id, const std::string& error);

 private:
  double seconds(const FormCosts::Seconds& of_byte, int64_t bytes) const {
    return tier_.copy_seconds + (of_byte.compute + of_byte.copy) * static_cast<double>(bytes);
  }
  Moved* moved(ValueId id) const;
  template <class Wait>
  bool wait(Wait wait_for);
  int64_t go(ValueId id);

  const std::shared_ptr<tiers::MoveTarget> target_;
  const Tier tier_;
  Residency& values_;
  StepCounts& counts_;
  std::atomic<bool> waiting_{false};
  const std::shared_ptr<MoveOrder> order_ = std::make_shared<MoveOrder>();
};

}  // namespace remat
