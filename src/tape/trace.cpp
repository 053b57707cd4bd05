#include "tape/trace.h"

#include <algorithm>
#include <utility>

#include "tape/packing.h"

namespace remat {

Trace::LastAllocations& Trace::last_allocations() {
  static thread_local LastAllocations last;
  return last;
}

Trace::Trace() {
  graph_.events.emplace_back();
  if (last_allocations_) log_ = std::make_unique<AllocationLog>();
}
Trace::~Trace() {
  memory::stop_observing(*this);
  const MutexLock lock(mutex_);
  if (log_ && ended_) *last_allocations_ = log_->take(ended_->values);
}

void Trace::kernel_begins() {
  const MutexLock lock(mutex_);
  ++kernels_;
  if (log_) log_->kernel_begins();
}

void Trace::kernel_ends() {
  const MutexLock lock(mutex_);
  if (--kernels_ == 0) {
    rises();  // what it allocated is written down here, even where more was freed
    change(std::exchange(withheld_, 0));
  }
  if (log_) log_->kernel_ends(last_event());
}

void Trace::update_begins() {
  const MutexLock lock(mutex_);
  update_.emplace();
}

void Trace::update_ends() {
  const MutexLock lock(mutex_);
  if (!update_) return;  // it began before the step
  const GraphEvent update = *std::exchange(update_, std::nullopt);
  const int64_t came = std::max<int64_t>(0, update.delta);
  came_to_stay_ += came;
  const int64_t rise = std::max<int64_t>(0, update.rise - came);
  change(rise);
  change(update.delta - came - rise);
}

void Trace::change(int64_t bytes) {
  if (kernels_ > 0) {
    withheld_ += bytes;
    return;
  }
  if (bytes > 0) rises();
  GraphEvent& event = update_ ? *update_ : graph_.events[fall_];
  event.delta += bytes;
  event.rise = std::max(event.rise, event.delta);
  if (update_) return;
  if (bytes < 0) fallen_ -= bytes;
  level_ += bytes;
  for (Window& window : windows_) window.peak = std::max(window.peak, level_);
}

void Trace::rises() {
  if (update_) return;
  top_ = fall_ = last_event();
  fallen_ = 0;
}

void Trace::add(GraphEvent::Kind kind, int32_t index) {
  graph_.events.push_back({kind, index, 0, 0});
  rises();
}

void Trace::add_in_fall(GraphEvent::Kind kind, int32_t index) {
  const auto at = [&](size_t event) { return graph_.events.begin() + static_cast<std::ptrdiff_t>(event); };
  const bool free = kind == GraphEvent::Kind::kFree;
  const auto first = at(free ? fall_ : top_) + 1, last = free ? graph_.events.end() : at(fall_ + 1);
  graph_.events[fall_].delta += free ? 0 : fallen_;
  graph_.events.insert(std::ranges::upper_bound(first, last, index, {}, &GraphEvent::index), {kind, index, 0, 0});
  if (!free) graph_.events[++fall_].delta -= fallen_;
}

void Trace::allocated(const void* data, int64_t bytes, bool plain) noexcept {
  const MutexLock lock(mutex_);
  if (ended_) return;
  homes_.erase(data);
  if (log_) log_->allocated(data, bytes, plain, last_event());
  if (plain) change(bytes);
}

void Trace::freed(const void* data, int64_t bytes, bool plain) noexcept {
  const MutexLock lock(mutex_);
  if (ended_) {
    if (log_) log_->freed(data, /*noted=*/false, last_event());
    return;
  }
  if (data == written_over_) {
    written_over_ = nullptr;
    return;
  }
  const auto home = homes_.find(data);
  if (log_) log_->freed(data, /*noted=*/home != homes_.end(), fall_);
  if (home == homes_.end()) {
    if (plain) change(-bytes);
    return;
  }
  const ValueId value = home->second;
  homes_.erase(home);
  if (plain) release(value);
}

void Trace::freed_elsewhere(const void* data, int64_t bytes, bool plain) noexcept {
  {
    const MutexLock lock(mutex_);
    if (homes_.find(data) == homes_.end()) return;
  }
  freed(data, bytes, plain);
}

void Trace::release(ValueId value) {
  const Stage before = std::exchange(stages_[value], Stage::kFreed);
  if (before == Stage::kFreed) return;
  level_ -= graph_.values[value].bytes;
  add_in_fall(GraphEvent::Kind::kFree, static_cast<int32_t>(value));
}

void Trace::forgotten(ValueId value, int64_t bytes) {
  const MutexLock lock(mutex_);
  if (value < stages_.size() && stages_[value] != Stage::kUnsaved) {
    release(value);
  } else {
    change(-bytes);
  }
}

void Trace::reused(int64_t bytes, const void* input) {
  const MutexLock lock(mutex_);
  if (log_) return;
  rises();
  GraphEvent& event = update_ ? *update_ : graph_.events.back();
  event.reused = std::max(event.reused, event.delta + withheld_ + bytes);  // until take(): plain's rise
  if (input == nullptr) return;
  written_over_ = input;
  change(-bytes);
}

void Trace::operator_begins() {
  const MutexLock lock(mutex_);
  windows_.push_back({level_, level_});
}

void Trace::operator_skipped() {
  const MutexLock lock(mutex_);
  if (!windows_.empty()) windows_.pop_back();
}

void Trace::operator_ended(const Program& program, const Residency& values, OperationId index) {
  const MutexLock lock(mutex_);
  const Operation& operation = program[index];
  GraphOperator op;
  op.name = operation.info->base_name();
  op.seconds = operation.seconds;
  op.replay_seconds = operation.replay_seconds();
  if (!windows_.empty()) {
    op.scratch_bytes = std::max<int64_t>(0, windows_.back().peak - level_);
    windows_.pop_back();
  }
  const auto first_result = static_cast<int32_t>(operation.first_value);
  program.for_each_tensor(operation, [&](const TensorArgument& t, uint32_t position) {
    if (t.value == kNoId) return;
    const auto add_to = [&](std::vector<int32_t>& ids) {
      const auto id = static_cast<int32_t>(t.value);
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    };
    add_to(op.inputs);
    if (operation.info->writes(position)) add_to(op.overwritten);
  });
  for (size_t v = graph_.values.size(); v < values.size(); ++v) {
    const Value& value = values[v];
    GraphValue& known = graph_.values.emplace_back();
    known.bytes = value.counted_bytes();
    if (value.producer == index) known.producer = static_cast<int32_t>(index);
  }
  stages_.resize(graph_.values.size(), Stage::kUnsaved);
  for (int32_t v = first_result; v < first_result + static_cast<int32_t>(operation.value_count); ++v)
    op.results.push_back(v);
  graph_.operators.resize(index);  // those between were not recorded
  graph_.operators.push_back(std::move(op));
  add(GraphEvent::Kind::kOperator, static_cast<int32_t>(index));
}

void Trace::holds(ValueId value, const c10::StorageImpl& storage) {
  const MutexLock lock(mutex_);
  if (value >= stages_.size()) return;
  homes_[storage.data()] = value;
  if (log_) log_->holds(value, storage.data());
  if (stages_[value] != Stage::kUnsaved) return;
  stages_[value] = Stage::kSaved;
  saved_.push_back(value);
}

void Trace::held(int64_t bytes) {
  const MutexLock lock(mutex_);
  change(bytes);
  if (log_) log_->held(bytes, last_event());
}

void Trace::find_idle(const Residency& values, bool between_frees) {
  const MutexLock lock(mutex_);
  std::erase_if(saved_, [&](ValueId id) REMAT_REQUIRES(mutex_) {
    const Value& value = values[id];
    const bool asked = stages_[id] == Stage::kUsed;  // while somebody held it
    if (stages_[id] != Stage::kSaved && !asked) return true;
    if (asked && value.needs.saved == 0 && value.needs.held_for == 0) return true;
    if (value.is_in_use()) return false;
    put_away(values, id, between_frees);
    return true;
  });
}

void Trace::put_away(const Residency& values, ValueId id, bool between_frees) {
  const Value& value = values[id];
  stages_[id] = Stage::kIdle;
  GraphValue& known = graph_.values[id];
  const bool there =
      (value.kept || value.account != PlainAccount::kSame) && !values.emptied(id);  // not overwritten since
  const bool droppable =
      there && value.is_recomputable() && !value.is_pinned() && (value.needs.saved > 0 || value.needs.held_for > 0);
  known.dropped = droppable && value.policy.retention == Retention::kDrop && value.policy.anchor_of == 0;
  known.droppable = droppable && !known.dropped;
  const bool packable = known.droppable && value.needs.saved > 0;  // for replays alone it would be unpacked each time
  if (packable && value.form.is_packed()) known.packed_bytes = value.form.contents->bytes();
  if (packable && value.kept && value.form.element_bytes > 0) {
    if (const auto packed = Packed::of(*value.kept, value.extent, value.form.element_bytes)) {
      known.packed_bytes = packed->bytes();
    }
  }
  const auto index = static_cast<int32_t>(id);
  between_frees ? add_in_fall(GraphEvent::Kind::kIdle, index) : add(GraphEvent::Kind::kIdle, index);
}

void Trace::used(ValueId value) {
  const MutexLock lock(mutex_);
  if (value >= stages_.size() || stages_[value] == Stage::kUnsaved || stages_[value] == Stage::kFreed) return;
  stages_[value] = Stage::kUsed;
  add(GraphEvent::Kind::kUse, static_cast<int32_t>(value));
}

void Trace::idle_again(const Residency& values, ValueId value) {
  const MutexLock lock(mutex_);
  if (value >= stages_.size() || stages_[value] != Stage::kUsed) return;
  put_away(values, value, /*between_frees=*/false);
}

void Trace::superseded(ValueId value) {
  const MutexLock lock(mutex_);
  if (value < stages_.size()) stages_[value] = Stage::kUnsaved;
}

Graph Trace::take(int64_t baseline_bytes, double step_seconds) {
  if (!last_allocations_) memory::stop_observing(*this);
  const MutexLock lock(mutex_);
  ended_ = {.values = graph_.values.size(), .event = last_event()};
  graph_.baseline_bytes = baseline_bytes + came_to_stay_;
  graph_.step_seconds = step_seconds;
  for (GraphEvent& event : graph_.events) {
    const int64_t rise = event.rise;
    event.rise = std::max(rise, event.reused);
    event.reused = event.rise - rise;
  }
  return std::move(graph_);
}

}  // namespace remat
