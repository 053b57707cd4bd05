#include "fuzz/machine.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

namespace remat::fuzz {

namespace {

constexpr int64_t kLargest = 40000;  // elements: larger results are thrown away

int64_t draw_size(Random& random, int64_t scale) {
  if (random.chance(2)) return 0;
  return random.chance(15) ? 1 : random.between(2, scale);
}

/// The same numbers on every device.
Tensor make_leaf(const ParameterSpec& spec, uint64_t seed, c10::Device device) {
  auto generator = at::detail::createCPUGenerator(Random::mix(seed, static_cast<uint64_t>(spec.id)));
  auto leaf = at::randn(spec.sizes, generator, at::kDouble).mul_(0.5).to(spec.type).to(device);
  return leaf.set_requires_grad(spec.requires_grad);
}

at::Generator make_generator(uint64_t seed, c10::Device device) {
  if (device.is_cpu()) return at::detail::createCPUGenerator(seed);
  auto generator = at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
  generator.set_current_seed(seed);
  return generator;
}

bool is_budget_error(const std::exception& e) { return dynamic_cast<const BudgetError*>(&e) != nullptr; }
bool is_refusal(const std::exception& e) { return dynamic_cast<const Error*>(&e) != nullptr; }
bool is_broken(const std::exception& e) { return dynamic_cast<const InternalError*>(&e) != nullptr; }

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

bool is_float(const Tensor& t) { return t.defined() && at::isFloatingType(t.scalar_type()); }

std::string Slot::name() const {
  std::string text(1, leaf ? 'p' : 't');
  return text.append(std::to_string(id));
}

Machine::Machine(Program program, std::vector<ParameterSpec> parameters)
    : program_(std::move(program)), generator_(make_generator(program_.seed, program_.device)) {
  for (const auto& spec : parameters) premade_[spec.id] = make_leaf(spec, program_.seed, program_.device);
  Random random(Random::mix(program_.seed, 1));
  const int64_t leaves = random.between(2, 4);
  for (int64_t i = 0; i < leaves; ++i) {
    ParameterSpec spec;
    spec.id = static_cast<int>(i);
    const int64_t dims = random.chance(70) ? random.between(2, 3) : random.between(0, 4);
    for (int64_t d = 0; d < dims; ++d) spec.sizes.push_back(draw_size(random, program_.scale));
    spec.type = random.chance(15) ? at::kDouble : at::kFloat;
    spec.requires_grad = i == 0 || random.chance(70);
    slots.push_back({make_leaf(spec, program_.seed, program_.device), spec.id, true});
  }
  const int64_t choices[] = {0, 15, 40, 80};
  forget_percent_ = choices[random.below(4)];
  inference_backward_ =
      (program_.kind == Kind::kOrdinary || program_.kind == Kind::kStorages || program_.kind == Kind::kThreads) &&
      Random(Random::mix(program_.seed, 4)).chance(15);
  if (draws()) torch::manual_seed(program_.seed);
}

void Machine::note_failure(const std::exception& e) {
  if (std::string(e.what()).find("queued before failed") != std::string::npos) failed_later_ = true;
}

Machine::~Machine() {
  for (auto& away : away_) slots.insert(slots.end(), away.slots.begin(), away.slots.end());
  // create_graph makes cycles through the gradients of leaves.
  for (auto& slot : slots) {
    if (slot.leaf) slot.t.mutable_grad().reset();
  }
}

Slot Machine::pick(const std::function<bool(const Slot&)>& fits, uint64_t salt) const {
  Slot best;
  uint64_t best_score = 0;
  const uint64_t key = Random::mix(Random::mix(program_.seed, static_cast<uint64_t>(instruction_) + 1000), salt);
  for (const auto& slot : slots) {
    if (!fits(slot)) continue;
    // Three shares to the newest of the pool, so that programs get deep; `leaf` ids are apart from the others.
    const auto id = static_cast<uint64_t>(slot.id) * 2 + (slot.leaf ? 1 : 0);
    uint64_t score = Random::mix(key, id) >> 2;
    if (!slot.leaf) score = std::max(score, Random::mix(key + 1, id) >> 2);
    if (!best || score > best_score) {
      best = slot;
      best_score = score;
    }
  }
  return best;
}

Slot Machine::pick_float(uint64_t salt) const {
  return pick([](const Slot& s) { return is_float(s.t); }, salt);
}

Slot Machine::pick_float(int64_t low, int64_t high, uint64_t salt) const {
  return pick([&](const Slot& s) { return is_float(s.t) && s.t.dim() >= low && s.t.dim() <= high; }, salt);
}

Slot Machine::pick_broadcastable(const Slot& x, uint64_t salt) const {
  const auto sizes = x.t.sizes();
  const Slot other = pick(
      [&](const Slot& s) {
        if (!is_float(s.t)) return false;
        const auto mine = s.t.sizes();
        for (size_t i = 0; i < std::min(mine.size(), sizes.size()); ++i) {
          const auto a = mine[mine.size() - 1 - i];
          const auto b = sizes[sizes.size() - 1 - i];
          if (a != b && a != 1 && b != 1) return false;
        }
        return true;
      },
      salt);
  return other ? other : x;
}

Slot Machine::parameter(std::vector<int64_t> sizes, at::ScalarType type) {
  const int id = 100 + instruction_ * 10 + asked_++;
  const bool reuse = random_.chance(40);
  const bool requires_grad = random_.chance(75);
  if (reuse) {
    const Slot old = pick(
        [&](const Slot& s) { return s.leaf && s.t.sizes() == at::IntArrayRef(sizes) && s.t.scalar_type() == type; },
        static_cast<uint64_t>(id));
    if (old) return old;
  }
  ParameterSpec spec{id, std::move(sizes), type, requires_grad};
  const auto found = premade_.find(id);
  const Slot slot{found != premade_.end() ? found->second : make_leaf(spec, program_.seed, program_.device), id, true};
  say(slot.name() + " = parameter" + c10::str(at::IntArrayRef(spec.sizes)) + (requires_grad ? "" : " frozen"));
  slots.push_back(slot);
  parameters_.push_back(std::move(spec));
  return slot;
}

Tensor Machine::indices(int64_t high, std::vector<int64_t> sizes) {
  if (draws()) return at::randint(high, sizes, options(at::kLong));
  int64_t count = 1;
  for (const auto size : sizes) count *= size;
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  for (auto& number : numbers) number = random_.below(high);
  return torch::tensor(numbers, at::kLong).view(sizes).to(device());
}

void Machine::take_away(const Slot& x, std::function<void()> fill) {
  Away away{{}, std::move(fill)};
  const auto* const storage = x.t.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  std::erase_if(slots, [&](const Slot& s) {
    const bool shares = s.t.has_storage() && s.t.storage().unsafeGetStorageImpl() == storage;
    if (shares) away.slots.push_back(s);
    return shares;
  });
  away_.push_back(std::move(away));
}

void Machine::refill() {
  for (auto& away : std::exchange(away_, {})) {
    slots.insert(slots.end(), away.slots.begin(), away.slots.end());
    away.fill();
  }
}

void Machine::say(const std::string& text) { listing_ += "  " + std::to_string(instruction_) + ": " + text + "\n"; }

void Machine::add_slot(const Tensor& tensor) {
  const int id = instruction_ * 10 + results_++;
  if (!tensor.defined() || tensor.numel() > kLargest) return;
  if (tensor.numel() == 0) empty.emplace_back(tensor.getIntrusivePtr());
  slots.push_back({tensor, id, false});
}

void Machine::emit(const std::string& text, const std::function<Tensor()>& make) {
  say(Slot{{}, instruction_ * 10 + results_, false}.name() + " = " + text);
  const Tensor result = make();
  if (result.defined()) listing_.insert(listing_.size() - 1, "  -> " + c10::str(result.sizes()));
  add_slot(result);
}

void Machine::emit_all(const std::string& text, const std::function<std::vector<Tensor>()>& make) {
  say(Slot{{}, instruction_ * 10 + results_, false}.name() + "... = " + text);
  for (const auto& result : make()) {
    if (results_ < 9) add_slot(result);
  }
}

void Machine::act(const std::string& text, const std::function<void()>& action) {
  say(text);
  action();
}

void Machine::forget(int id) {
  std::erase_if(slots, [&](const Slot& s) { return !s.leaf && s.id == id; });
}

void Machine::record(const std::string& what, const Tensor& tensor) {
  trace_.entries.emplace_back(what, fingerprint(tensor));
}

void Machine::backward(const std::string& text, const std::function<void()>& run) {
  say(text + (inference_backward_ ? " under inference_mode" : ""));
  try {
    std::optional<c10::InferenceMode> mode;
    if (inference_backward_) mode.emplace();
    run();
    mode.reset();
    rest_threads();
  } catch (const std::exception& e) {
    if (is_budget_error(e)) throw;
    note_failure(e);
    say("threw " + first_line(e.what()));
    stopped_ = true;
    // What verify finds it cannot tell from an operator that does not repeat.
    const bool found = program_.kind == Kind::kHiddenWrites && is_broken(e) &&
                       std::string(e.what()).find("written to") != std::string::npos;
    const bool broken = is_broken(e) && !found;
    if (is_refusal(e) || found) {
      trace_.refused = true;
      trace_.refusal = first_line(e.what());
    }
    trace_.entries.emplace_back(broken ? std::string("internal error: ") + e.what() : "backward threw", 1);
  }
}

void Machine::failed(const char* what, const std::exception& e) {
  if (is_budget_error(e)) throw;
  note_failure(e);
  say(std::string(what) + " threw " + first_line(e.what()));
  // remat must throw where plain throws, and nowhere else; the words may differ.
  const bool ours = is_refusal(e) || is_broken(e);
  if (is_refusal(e) && program_.may_be_refused()) {
    trace_.refused = stopped_ = true;
    trace_.refusal = first_line(e.what());
  }
  trace_.entries.emplace_back(
      ours ? std::string("remat threw: ") + e.what() : "instruction " + std::to_string(instruction_) + " threw", 1);
}

void Machine::step(int index) {
  instruction_ = index;
  results_ = asked_ = 0;
  random_ = Random(Random::mix(program_.seed, static_cast<uint64_t>(index) + 100));
  int total = 0;
  for (const auto& op : catalogue(program_.kind, device())) total += op.weight;
  int64_t at = random_.below(total);
  const Operator* chosen = nullptr;
  for (const auto& op : catalogue(program_.kind, device())) {
    chosen = &op;
    if ((at -= op.weight) < 0) break;
  }
  try {
    chosen->run(*this);
  } catch (const std::exception& e) {
    failed(chosen->name, e);
  }
  if (random_.chance(forget_percent_)) {
    const Slot old = pick([](const Slot& s) { return !s.leaf; }, 77);
    if (old) {
      say("forget " + old.name());
      forget(old.id);
    }
  }
}

void Machine::run(const std::vector<ScopeRange>& scopes) {
  Random random(Random::mix(program_.seed, 2));
  const auto range = [&](int64_t percent) {
    if (!random.chance(percent)) return std::pair<int64_t, int64_t>(-1, -1);
    const int64_t begin = random.below(program_.length);
    return std::pair<int64_t, int64_t>(begin, begin + random.between(1, 4));
  };
  const auto no_grad = range(20);
  const auto autocast = range(20);
  std::vector<std::unique_ptr<PolicyScope>> open;
  std::vector<int> ends;
  struct AutocastRegion {  // what torch.autocast does, restored however the region ends
    c10::DeviceType device;
    bool enabled = at::autocast::is_autocast_enabled(device);
    explicit AutocastRegion(c10::DeviceType type) : device(type) {
      at::autocast::set_autocast_enabled(device, true);
      at::autocast::increment_nesting();
    }
    ~AutocastRegion() {
      if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(device, enabled);
    }
  };
  std::unique_ptr<AutocastRegion> cast;
  std::unique_ptr<torch::NoGradGuard> frozen;
  for (int i = 0; i < program_.length && !stopped_; ++i) {
    while (!ends.empty() && ends.back() <= i) {
      open.pop_back();
      ends.pop_back();
    }
    for (const auto& scope : scopes) {
      if (scope.begin != i) continue;
      open.push_back(std::make_unique<PolicyScope>(scope.policy));
      ends.push_back(ends.empty() ? scope.end : std::min(scope.end, ends.back()));
    }
    if (program_.left_out.count(i) != 0) continue;
    if (autocast.first <= i && i < autocast.second) {
      if (!cast) say("autocast:"), cast = std::make_unique<AutocastRegion>(device().type());
    } else {
      cast.reset();
    }
    if (no_grad.first <= i && i < no_grad.second) {
      if (!frozen) say("no_grad:"), frozen = std::make_unique<torch::NoGradGuard>();
    } else {
      frozen.reset();
    }
    step(i);
  }
  frozen.reset();
  cast.reset();
  while (!open.empty()) open.pop_back();
  instruction_ = program_.length;
  results_ = asked_ = 0;
  random_ = Random(Random::mix(program_.seed, 3));
  if (stopped_) return;
  try {
    for (const auto& slot : slots) record("forward " + slot.name(), slot.t);
    final_losses();
  } catch (const std::exception& e) {
    failed("losses", e);
    stopped_ = true;
  }
}

}  // namespace remat::fuzz
