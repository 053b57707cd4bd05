#include <remat/module_policies.h>

#include <map>
#include <string_view>

#include <remat/error.h>

#include "observe/policy_scopes.h"
#include "session/module_path.h"
#include "session/policy_tape.h"

namespace remat {
namespace {

/// Does `path` have the form of `pattern`? `*`: any characters but dots; `**`: any.
bool matches(std::string_view pattern, std::string_view path) {
  std::vector<bool> begins(path.size() +
                           1);  // by length: does so much of the path have the form of the pattern so far?
  begins[0] = true;
  for (size_t at = 0; at < pattern.size(); ++at) {
    if (pattern[at] == '*') {
      const bool dots = pattern.substr(at).starts_with("**");
      if (dots) ++at;
      for (size_t length = 1; length <= path.size(); ++length) {
        if (begins[length - 1] && (dots || path[length - 1] != '.')) begins[length] = true;
      }
    } else {
      for (size_t length = path.size(); length > 0; --length) {
        begins[length] = begins[length - 1] && path[length - 1] == pattern[at];
      }
      begins[0] = false;
    }
  }
  return begins.back();
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
        if (!place.rules) place.rules = rules[r].second.rules_;
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
  PolicyScopes::Id scope = 0;
};

ModulePolicyScope::ModulePolicyScope(const ModulePolicies& policies) : impl_(std::make_unique<Impl>()) {
  ModulePlaces modules;
  for (const auto& [parameter, place] : policies.table_->places) modules.add(parameter, place);
  impl_->scope = impl_->tape.recorder()->push_scope(std::move(modules));
}

ModulePolicyScope::~ModulePolicyScope() {
  if (Recorder* const recorder = impl_->tape.recorder()) recorder->pop_scope(impl_->scope);
}

}  // namespace remat
