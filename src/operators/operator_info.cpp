#include "operators/operator_info.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include <ATen/core/enum_tag.h>
#include <c10/util/flat_hash_map.h>
#include <remat/error.h>
#include <remat/operators.h>

#include "operators/composites.h"

#include "memory/fork.h"
#include "util/compute_bound.h"

namespace remat {
namespace {

/// Operators without PyTorch's tag for pointwise ones that multiply no matrices either: oneDNN's precision switches do
/// not matter to them. To leave one out costs nanoseconds, a wrong one bits.
constexpr std::array<std::string_view, 28> kWithoutProducts = {"aten::_log_softmax",
                                                               "aten::_softmax",
                                                               "aten::_to_copy",
                                                               "aten::arange",
                                                               "aten::bernoulli_",
                                                               "aten::cat",
                                                               "aten::clone",
                                                               "aten::copy_",
                                                               "aten::embedding",
                                                               "aten::fill_",
                                                               "aten::gather",
                                                               "aten::index",
                                                               "aten::index_select",
                                                               "aten::max_pool2d_with_indices",
                                                               "aten::mean",
                                                               "aten::native_batch_norm",
                                                               "aten::native_dropout",
                                                               "aten::native_group_norm",
                                                               "aten::native_layer_norm",
                                                               "aten::nll_loss_forward",
                                                               "aten::ones_like",
                                                               "aten::stack",
                                                               "aten::sum",
                                                               "aten::upsample_nearest2d",
                                                               "aten::var_mean",
                                                               "aten::zero_",
                                                               "aten::zeros",
                                                               "aten::zeros_like"};

/// Operators that make a tensor from another's shape. Those without any tensor argument need not be named, nor
/// aten::empty and its kin.
constexpr std::array<std::string_view, 8> kFactories = {"aten::zeros_like", "aten::ones_like",        "aten::full_like",
                                                        "aten::new_empty",  "aten::new_zeros",        "aten::new_ones",
                                                        "aten::new_full",   "aten::new_empty_strided"};

/// Factories that give every element a value, which a replay gives it again.
constexpr std::array<std::string_view, 21> kFillingFactories = {
    "aten::zeros",      "aten::ones",      "aten::full",      "aten::rand",         "aten::randn",
    "aten::randint",    "aten::randperm",  "aten::normal",    "aten::arange",       "aten::range",
    "aten::linspace",   "aten::logspace",  "aten::eye",       "aten::tril_indices", "aten::triu_indices",
    "aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::new_zeros",    "aten::new_ones",
    "aten::new_full"};

constexpr std::array<std::string_view, 11> kFills = {
    "aten::fill_",        "aten::zero_",   "aten::copy_",   "aten::bernoulli_",  "aten::normal_",   "aten::uniform_",
    "aten::exponential_", "aten::random_", "aten::cauchy_", "aten::log_normal_", "aten::geometric_"};

/// Kernels whose results depend on more than their inputs, and that PyTorch does not tag so. Least squares: the default
/// driver on the CPU (gelsy) is given its pivots in memory that nobody has filled.
constexpr std::array<std::string_view, 1> kNotReproducible = {"aten::linalg_lstsq"};

/// Writes by index: where an index comes twice, threads add atomically or the last one wins. Not tagged either.
constexpr std::array<std::string_view, 9> kRacing = {"aten::index_put",
                                                     "aten::index_put_",
                                                     "aten::_index_put_impl_",
                                                     "aten::_unsafe_index_put",
                                                     "aten::_unsafe_masked_index_put_accumulate",
                                                     "aten::put",
                                                     "aten::put_",
                                                     "aten::index_copy",
                                                     "aten::index_copy_"};

/// Those that add atomically on CUDA, where the order decides, and not on the CPU. Not tagged either.
constexpr std::array<std::string_view, 14> kRacingOnDevices = {
    "aten::index_add",       "aten::index_add_",   "aten::scatter_add",   "aten::scatter_add_", "aten::scatter_reduce",
    "aten::scatter_reduce_", "aten::index_reduce", "aten::index_reduce_", "aten::cumsum",       "aten::cumsum_",
    "aten::bincount",        "aten::histc",        "aten::kthvalue",      "aten::median"};

/// Draws of zeros and ones, and what is made of them in masks: their results have two different elements.
constexpr std::array<std::string_view, 2> kTwoValued = {"aten::bernoulli", "aten::bernoulli_"};
constexpr std::array<std::string_view, 12> kElementwise = {
    "aten::mul", "aten::mul_", "aten::div",  "aten::div_",     "aten::add",   "aten::add_",
    "aten::sub", "aten::sub_", "aten::rsub", "aten::_to_copy", "aten::clone", "aten::where"};

bool contains(const auto& names, const auto& name) { return std::ranges::find(names, name) != names.end(); }

bool is_view(const c10::FunctionSchema& schema) {
  if (schema.returns().empty()) return false;
  for (const auto& result : schema.returns()) {
    const auto* alias = result.alias_info();
    if (alias == nullptr || alias->isWrite()) return false;
  }
  return true;
}

/// Where no special operator's file says what an operator does that its schema may hide, it is not replayed. Names of
/// arguments tell of which operators that is to be feared.
void be_careful(OperatorInfo& info, bool of_pytorch) {
  if (!is_settled(Doubt::kCommunication) && !of_pytorch && !info.trusted) info.contradicted = true;
  const auto& arguments = info.handle.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!is_settled(Doubt::kStatistics) && arguments[i].name().starts_with("running_")) {
      info.deterministic = false;
      if (!info.writes(i)) info.written.push_back(static_cast<uint16_t>(i));
    }
    // A recurrent layer's.
    if (!is_settled(Doubt::kPadding) && arguments[i].name() == "batch_sizes") info.deterministic = false;
  }
}

std::unique_ptr<OperatorInfo> make_info(const c10::OperatorHandle& handle) {
  const auto& schema = handle.schema();
  const auto& arguments = schema.arguments();
  auto made = std::make_unique<OperatorInfo>(handle);
  OperatorInfo& info = *made;
  info.name = schema.name();
  info.base_length = info.name.size();
  if (!schema.overload_name().empty()) info.name += "." + schema.overload_name();
  info.argument_count = static_cast<uint32_t>(arguments.size());
  info.result_count = static_cast<uint32_t>(schema.returns().size());
  for (const SpecialOperator* special : special_operators()) {
    if (special->describe != nullptr) special->describe(info);
  }
  const std::string_view base(schema.name());
  const bool of_pytorch = base.starts_with("aten::") || base.starts_with("prims::");
  const bool own_kernel = info.kernels.own() || info.kernels.own_autocast();
  info.foreign = (!of_pytorch && !info.trusted) || (own_kernel && base.starts_with("aten::"));
  info.own_autograd = (!of_pytorch && !info.trusted) || info.kernels.own_autograd();
  info.random = handle.hasTag(at::Tag::nondeterministic_seeded);
  const bool varies = handle.hasTag(at::Tag::nondeterministic_bitwise) && !info.blank;
  info.deterministic = !varies && !contains(kNotReproducible, base) && !info.kernels.opaque();
  info.compute = is_compute_bound(base);
  info.products = !handle.hasTag(at::Tag::pointwise) && !contains(kWithoutProducts, base);
  info.switches = info.foreign || info.products || base.starts_with("aten::gelu");  // gelu may be oneDNN's

  info.factory = base.starts_with("aten::empty") || contains(kFactories, base);
  info.fills_result = contains(kFillingFactories, base);
  info.overwrites = contains(kFills, base);
  info.two_valued = contains(kTwoValued, base);
  info.elementwise = contains(kElementwise, base);
  const bool metadata_only = handle.hasTag(at::Tag::inplace_view);
  const bool for_allocator =
      base == "aten::record_stream";  // which is told who reads: no write, whatever its schema says
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    const bool marked = alias != nullptr && alias->isWrite();
    const bool known = info.collective || contains(info.statistics, i);
    if (marked && !metadata_only && !for_allocator && !known) info.written.push_back(static_cast<uint16_t>(i));
    if (marked && arguments[i].kwarg_only()) info.overwrites = true;  // out=
    if (arguments[i].name() == "dtype") info.dtype_argument = static_cast<int16_t>(i);
    info.takes_options = info.takes_options || arguments[i].name() == "pin_memory";
    const auto& type = arguments[i].type();
    const bool generator =
        type->kind() == c10::TypeKind::GeneratorType ||
        (type->kind() == c10::TypeKind::OptionalType && type->containedType(0)->kind() == c10::TypeKind::GeneratorType);
    if (!generator) continue;
    info.several_generators = info.generator_argument >= 0;
    info.generator_argument = static_cast<int16_t>(i);
  }
  info.random = info.random || info.generator_argument >= 0;
  info.races = contains(kRacing, base);
  info.races_on_device = info.races || contains(kRacingOnDevices, base);
  if (base == "aten::_ctc_loss") info.workspace_result = 1;  // behind the lengths of shorter targets
  const bool composite = handle.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
                         !handle.hasKernelForDispatchKey(c10::DispatchKey::Autograd) &&
                         !handle.hasKernelForDispatchKey(device::kHostKeys.autograd);
  const bool resizes = base == "aten::resize_" || base == "aten::resize_as_" || base.starts_with("aten::set_");
  info.reshapes = metadata_only && !resizes;
  info.never_recorded =
      (is_view(schema) || composite || metadata_only || for_allocator) && !resizes && !info.collective;
  be_careful(info, of_pytorch);
  return made;
}

class Registry {
 public:
  Registry() { free_in_children(mutex_); }

  const OperatorInfo* find(const c10::OperatorName& name) {
    const auto handle = c10::Dispatcher::singleton().findOp(name);
    if (!handle || !handle->hasSchema()) return nullptr;
    const MutexLock lock(mutex_);
    return &current(*handle);
  }

  void declare(const std::string& name, Declared declared) {
    const MutexLock lock(mutex_);
    bool found = false;
    for (const auto& registered : c10::Dispatcher::singleton().getAllOpNames()) {
      if (!names(name, registered)) continue;
      const auto handle = c10::Dispatcher::singleton().findOp(registered);
      if (!handle || !handle->hasSchema()) continue;
      check(current(*handle), declared);
      found = true;
    }
    if (!found) {
      throw Error("[operators] there is no operator \"" + name +
                  "\"; names are such as \"mylib::gate\", and the library that registers it must have been loaded");
    }
    declared_[name] = declared;
    for (const auto& [registered, info] : infos_) {
      if (names(name, registered)) info->declared = declared;
    }
  }

  bool all_repeat(const std::string& name) {
    const MutexLock lock(mutex_);
    bool found = false;
    for (const auto& registered : c10::Dispatcher::singleton().getAllOpNames()) {
      if (!names(name, registered)) continue;
      const auto handle = c10::Dispatcher::singleton().findOp(registered);
      if (!handle || !handle->hasSchema()) continue;
      const OperatorInfo& info = current(*handle);
      found = true;
      if (!info.repeatable() || info.races) return false;
    }
    return found;
  }

 private:
  /// Told by the dispatcher, which holds its lock.
  struct Listener final : c10::OpRegistrationListener {
    explicit Listener(Registry& owner) : registry(owner) {}
    void onOperatorRegistered(const c10::OperatorHandle& /*op*/) override {}
    void onOperatorDeregistered(const c10::OperatorHandle& op) override { registry.retire(op.operator_name()); }
    Registry& registry;
  };

  static bool names(const std::string& name, const c10::OperatorName& op) {
    return op.name == name || (!op.overload_name.empty() && op.name + "." + op.overload_name == name);
  }

  static void check(const OperatorInfo& info, Declared declared) {
    const std::string parts(parts_of(info.base_view()));
    if (info.never_recorded || !parts.empty()) {
      throw Error("[operators] " + info.name +
                  " is a view, or made of other operators, which are recorded by themselves; declare those" +
                  (parts.empty() ? "" : ": " + parts));
    }
    if (info.collective && declared == Declared::kRepeatable) {
      throw Error("[operators] " + info.name +
                  " communicates with other processes, which would have to take part in every replay; it cannot be "
                  "declared repeatable");
    }
  }

  const OperatorInfo& current(const c10::OperatorHandle& handle) REMAT_REQUIRES(mutex_) {
    auto& slot = infos_[handle.operator_name()];
    if (slot != nullptr && !slot->is_current()) retired_.push_back(std::move(slot));
    if (slot == nullptr) slot = make(handle);
    return *slot;
  }

  /// The operator is not there any more. Another one may get its name, and its place in memory.
  void retire(const c10::OperatorName& name) {
    const MutexLock lock(mutex_);
    const auto entry = infos_.find(name);
    if (entry == infos_.end() || entry->second == nullptr) return;
    entry->second->registered = false;
    retired_.push_back(std::move(entry->second));
    infos_.erase(entry);
  }

  /// With what was said of its name before it, or its kernels, were registered.
  std::unique_ptr<OperatorInfo> make(const c10::OperatorHandle& handle) const REMAT_REQUIRES(mutex_) {
    auto info = make_info(handle);
    for (const auto& name : {info->base_name(), info->name}) {
      if (const auto said = declared_.find(name); said != declared_.end()) info->declared = said->second;
    }
    return info;
  }

  Mutex mutex_;
  std::unordered_map<std::string, Declared> declared_ REMAT_GUARDED_BY(mutex_);
  std::unordered_map<c10::OperatorName, std::unique_ptr<OperatorInfo>> infos_ REMAT_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<OperatorInfo>> retired_ REMAT_GUARDED_BY(mutex_);  ///< tapes may refer to them
  const c10::RegistrationHandleRAII listening_ =
      c10::Dispatcher::singleton().addRegistrationListener(std::make_unique<Listener>(*this));
};

Registry& registry() {
  static auto* const instance = new Registry;  // outlives static destruction: operators may still run then
  return *instance;
}

}  // namespace

namespace {

/// Static objects that are destroyed after those of their thread may call operators.
thread_local bool t_cache_is_gone = false;

struct Cache {
  ska::flat_hash_map<const char*, const OperatorInfo*> infos;
  ~Cache() { t_cache_is_gone = true; }
};

}  // namespace

const OperatorInfo* operator_info(const c10::OperatorName& name) { return registry().find(name); }

const OperatorInfo* operator_info(const at::RecordFunction& fn) {
  const auto find = [&] {
    const auto name = fn.operator_name();
    return name ? registry().find(*name) : nullptr;
  };
  if (t_cache_is_gone) return find();
  // A schema keeps its name at one address for as long as it lives, so the address identifies the overload. Ranges
  // that are named by a temporary string have no operator name and are never put in the table.
  thread_local Cache cache;
  const char* const key = fn.name();
  if (const auto it = cache.infos.find(key); it != cache.infos.end() && it->second->is_current()) return it->second;
  const OperatorInfo* const info = find();
  if (info != nullptr) cache.infos[key] = info;
  return info;
}

void declare_operator(const std::string& name, Declared declared) { registry().declare(name, declared); }

void declare_repeatable(const std::string& name) { declare_operator(name, Declared::kRepeatable); }

void declare_not_repeatable(const std::string& name, bool writes_arguments) {
  declare_operator(name, writes_arguments ? Declared::kWritesArguments : Declared::kNotRepeatable);
}

bool is_repeatable_operator(const std::string& name) { return registry().all_repeat(name); }

}  // namespace remat
