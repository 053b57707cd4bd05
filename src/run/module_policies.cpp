#include <remat/module_policies.h>

#include <map>
#include <string_view>

#include <remat/error.h>

#include "record/module_watch.h"
#include "record/tensor_view.h"
#include "run/module_path.h"
#include "run/policy_tape.h"

namespace remat {
namespace {

/// Does `path` have the form of `pattern`? `*`: any characters but dots; `**`: any.
bool matches(std::string_view pattern, std::string_view path) {
  if (pattern.empty()) return path.empty();
  if (pattern[0] != '*') return !path.empty() && path[0] == pattern[0] && matches(pattern.substr(1), path.substr(1));
  const bool dots = pattern.starts_with("**");
  const std::string_view rest = pattern.substr(dots ? 2 : 1);
  for (size_t taken = 0;; ++taken) {
    if (matches(rest, path.substr(taken))) return true;
    if (taken == path.size() || (!dots && path[taken] == '.')) return false;
  }
}

[[noreturn]] void refuse(const std::string& pattern, const ModulePolicies::Parameters& parameters) {
  std::string known;
  std::string last;
  int count = 0;
  for (const auto& [name, tensor] : parameters) {
    const std::string path = module_around(name);
    if (path.empty() || path == last || ++count > 3) continue;
    known += (known.empty() ? "" : ", ") + path;
    last = path;
  }
  throw Error("[policies] no module with parameters is at \"" + pattern + "\"; " +
              (known.empty() ? "the model has none inside" : "there are " + known + (count > 3 ? " and others" : "")) +
              "; use paths as named_modules() gives them, and * for a part of one");
}

}  // namespace

struct ModulePolicies::Table {
  std::vector<std::pair<at::Tensor, ModulePlace>> places;
};

ModulePolicies::ModulePolicies(const Parameters& parameters, const Rules& rules) {
  auto table = std::make_shared<Table>();
  std::vector<bool> used(rules.size());
  std::map<std::string, uint32_t> regions;
  for (const auto& [name, tensor] : parameters) {
    if (!tensor.defined()) continue;
    ModulePlace place;
    std::string outermost;
    std::string path = name;
    do {
      path = module_around(path);
      bool found = false;
      for (size_t r = rules.size(); r-- > 0;) {
        if (!matches(rules[r].first, path)) continue;
        used[r] = true;
        if (!place.rules) place.rules = rules[r].second.shared_rules();
        found = true;
      }
      if (found) outermost = path;
    } while (!path.empty());
    if (place.rules) place.region = regions.emplace(outermost, regions.size() + 1).first->second;
    table->places.emplace_back(tensor, std::move(place));
  }
  for (size_t r = 0; r < rules.size(); ++r) {
    if (!used[r]) refuse(rules[r].first, parameters);
  }
  table_ = std::move(table);
}

struct ModulePolicyScope::Impl {
  PolicyTape tape;
  ModuleWatch watch;
  ModuleWatch* outer = nullptr;
};

ModulePolicyScope::ModulePolicyScope(const ModulePolicies& policies) : impl_(std::make_unique<Impl>()) {
  for (const auto& [tensor, place] : policies.shared_table()->places) {
    if (tensor.has_storage()) impl_->watch.places.emplace(storage_of(tensor), place);
  }
  impl_->outer = impl_->tape.recorder()->watch_modules(&impl_->watch);
}

ModulePolicyScope::~ModulePolicyScope() {
  if (Recorder* const recorder = impl_->tape.recorder()) recorder->unwatch_modules(impl_->outer);
}

}  // namespace remat
