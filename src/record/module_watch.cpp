#include "record/module_watch.h"

#include <utility>

#include "record/recorder.h"
#include "record/tensor_view.h"
#include "record/tensors_of.h"

namespace remat {

const ModulePlace* ModuleWatch::place_of(c10::ArrayRef<const c10::IValue> inputs) const {
  const ModulePlace* place = nullptr;
  for (const c10::IValue& input : inputs) {
    for_each_tensor(input, [&](const at::Tensor& tensor) {
      if (place != nullptr || !tensor.defined() || !tensor.has_storage()) return;
      const auto found = places.find(storage_of(tensor));
      if (found != places.end()) place = &found->second;
    });
  }
  return place;
}

ModuleWatch* Recorder::watch_modules(ModuleWatch* watch) {
  watch->depth = scopes_.size();
  return std::exchange(modules_, watch);
}

void Recorder::unwatch_modules(ModuleWatch* outer) {
  if (modules_->region != 0) pop_scope();
  modules_ = outer;
}

void Recorder::enter_module(c10::ArrayRef<const c10::IValue> inputs) {
  const size_t own = modules_->region != 0 ? 1 : 0;
  if (scopes_.size() > modules_->depth + own) return;  // the user's scope inside decides
  const ModulePlace* const place = modules_->place_of(inputs);
  if (place == nullptr) return;  // it goes on with what the last module made
  if (place->region == modules_->region) {
    if (own != 0) scopes_.back() = place->rules;
    return;
  }
  if (own != 0) pop_scope();
  modules_->region = place->region;
  if (place->region != 0) push_scope(place->rules);
}

}  // namespace remat
