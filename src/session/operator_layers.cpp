// Which module of a model each operator of a step is in: known by the parameters that operators read.
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pytorch/tensor_view.h"
#include "session/module_path.h"
#include "session/session_impl.h"

namespace remat {

std::vector<std::string> Session::layers(const std::vector<std::pair<std::string, at::Tensor>>& parameters) const {
  const size_t operators = graph().operators.size();
  std::unordered_map<const c10::StorageImpl*, std::string> modules;
  for (const auto& [name, tensor] : parameters) {
    if (tensor.defined() && tensor.has_storage()) modules.emplace(storage_of(tensor), module_around(name));
  }
  std::vector<std::string> layers(operators);
  size_t next = 0;  // the first operator that has no layer yet
  const std::string* module = nullptr;
  for (const LeafRead& read : impl_->leaf_reads) {
    const auto storage = read.storage.lock();
    const auto found = storage ? modules.find(storage.get()) : modules.end();
    if (found == modules.end() || read.by < next || read.by >= operators) continue;
    if (module != nullptr) {
      const std::string outer = module_around(*module);
      for (; next < read.by; ++next) layers[next] = outer.empty() ? *module : outer;
    }
    module = &found->second;
    layers[read.by] = *module;
    next = read.by + 1;
  }
  return layers;
}

}  // namespace remat
