// tests/fuzz/machine.h -- runs one random program: a training step made of random operators.
//
// A program is its seed, its length and the set of instructions that are left out. Every instruction draws its choices
// from a generator of its own, and picks operands by rendezvous hashing among the tensors that fit: leaving one
// instruction out changes only those that used its result. That is what lets the shrinker work.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Device.h>
#include <torch/torch.h>

#include <remat/remat.h>

#include "fuzz/random.h"

namespace remat::fuzz {

using at::Tensor;

/// What a program does beside ordinary operators.
enum class Kind : uint8_t {
  kOrdinary,
  kStorages,        ///< empties storages of parameters, inputs and activations, and fills them again before backward
  kHiddenInputs,    ///< writes to inputs through pointers, .data and aliases that no operator shows
  kHiddenWrites,    ///< the same to parameters, activations and random results: what only verify promises to find
  kSparse,          ///< sparse tensors over dense ones that are written to
  kScripts,         ///< TorchScript functions that change the lists that they have passed to operators
  kDoubleBackward,  ///< gradient penalties, products with Hessians, parameters after a step
  kThreads,         ///< nothing that draws from the default generator, which threads share
};

struct Program {
  uint64_t seed = 0;
  int length = 20;
  int64_t scale = 5;       ///< the largest size that is drawn for a dimension
  std::set<int> left_out;  ///< instructions that the shrinker found not to matter
  Kind kind = Kind::kOrdinary;
  c10::Device device = c10::kCPU;  ///< of its tensors; where it is no CPU, some operators are others

  /// Memory changes behind remat's back: then an error is as good as the same bits.
  bool may_be_refused() const {
    return kind == Kind::kStorages || kind == Kind::kHiddenInputs || kind == Kind::kHiddenWrites ||
           kind == Kind::kSparse;
  }
};

/// A policy in force from instruction `begin` until before instruction `end`.
struct ScopeRange {
  int begin = 0;
  int end = 0;
  Policy policy = Policy::drop_all();
};
/// One to five, which may overlap.
std::vector<ScopeRange> random_scopes(const Program& program, Random& random);

/// What a program did: named fingerprints, in order. An error is an entry too.
struct Trace {
  std::vector<std::pair<std::string, uint64_t>> entries;
  /// A remat::Error in backward, which ends the trace; where memory changes behind remat's back, in forward too.
  bool refused = false;
  std::string refusal;
  /// A kernel that a device had queued failed: when that shows is chance.
  bool failed_later = false;
};

/// A tensor of the program and its name in the listing.
struct Slot {
  Tensor t;
  int id = -1;
  bool leaf = false;
  explicit operator bool() const { return t.defined(); }
  std::string name() const;
};

/// Sizes, type and gradient need of a parameter that an instruction asked for.
struct ParameterSpec {
  int id = 0;
  std::vector<int64_t> sizes;
  at::ScalarType type = at::kFloat;
  bool requires_grad = true;
};

class Machine {
 public:
  /// Makes the leaves: those that every program has, and `parameters`, found by an earlier run of the program (empty:
  /// then each is made when an instruction asks for it).
  explicit Machine(Program program, std::vector<ParameterSpec> parameters = {});
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// false: remat's own interfaces inside the program become plain calls.
  bool with_remat = true;

  /// Forward and backward. BudgetError passes through, every other exception becomes an entry of the trace.
  void run(const std::vector<ScopeRange>& scopes = {});
  /// Adds gradients, leaves and generator states to the trace and returns it.
  Trace finish();
  /// The device has done what it was given, and autograd's thread for it holds nothing any more. True if a kernel
  /// failed.
  bool settle();

  const std::vector<ParameterSpec>& parameters() const { return parameters_; }
  const std::string& listing() const { return listing_; }

  // ---- for instructions ----
  Random& random() { return random_; }
  int64_t scale() const { return program_.scale; }
  at::Generator& generator() { return generator_; }
  Kind kind() const { return program_.kind; }
  c10::Device device() const { return program_.device; }
  at::TensorOptions options(at::ScalarType type) const { return at::TensorOptions(type).device(program_.device); }
  /// May it draw from the default generator?
  bool draws() const { return program_.kind != Kind::kThreads; }
  /// Random numbers below `high`: from the default generator where the program may draw from it.
  Tensor indices(int64_t high, std::vector<int64_t> sizes);

  /// One of the tensors that fit; an empty slot if none does. `salt` tells several picks of one instruction apart.
  Slot pick(const std::function<bool(const Slot&)>& fits, uint64_t salt = 0) const;
  Slot pick_float(uint64_t salt = 0) const;
  /// A floating-point tensor with `low` to `high` dimensions.
  Slot pick_float(int64_t low, int64_t high, uint64_t salt = 0) const;
  /// A floating-point tensor that broadcasts with `x`; `x` itself if there is no other.
  Slot pick_broadcastable(const Slot& x, uint64_t salt = 1) const;
  /// The leaf of these sizes: an old one if there is one and chance wants it, else a new one.
  Slot parameter(std::vector<int64_t> sizes, at::ScalarType type);

  /// Runs `make` and adds its result to the tensors of the program, as "tN = text".
  void emit(const std::string& text, const std::function<Tensor()>& make);
  void emit_all(const std::string& text, const std::function<std::vector<Tensor>()>& make);
  /// Runs `act`, listed as `text`.
  void act(const std::string& text, const std::function<void()>& act);
  void say(const std::string& text);
  void forget(int id);
  void record(const std::string& what, const Tensor& tensor);
  /// Runs backward of some losses, in some programs under inference_mode; an error there ends the program.
  void backward(const std::string& text, const std::function<void()>& run);
  bool stopped() const { return stopped_; }
  bool inference_backward() const { return inference_backward_; }
  /// Takes `x`, and every tensor of the program that shares its storage, out of the program until refill() runs
  /// `fill`: at the latest before the next backward, or within it.
  void take_away(const Slot& x, std::function<void()> fill);
  /// Fills what was emptied, the oldest first, and gives it back to the program.
  void refill();

  std::vector<Slot> slots;
  std::vector<Slot> sparse;                                     ///< not among the slots: few operators take them
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> empty;  ///< all that were made: their leaks have no bytes

 private:
  void step(int index);
  void final_losses();
  /// In a handler: an error of an instruction is an entry of the trace; a budget error goes on.
  void failed(const char* what, const std::exception& e);
  void note_failure(const std::exception& e);
  void rest_threads();
  void add_slot(const Tensor& tensor);

  struct Away {
    std::vector<Slot> slots;
    std::function<void()> fill;
  };

  Program program_;
  std::vector<Away> away_;
  std::vector<ParameterSpec> parameters_;
  std::map<int, Tensor> premade_;
  Random random_{0};
  at::Generator generator_;
  Trace trace_;
  std::string listing_;
  int instruction_ = -1;
  int results_ = 0;
  int asked_ = 0;
  bool stopped_ = false;
  bool failed_later_ = false;
  bool inference_backward_ = false;
  int64_t forget_percent_ = 0;
};

struct Operator {
  const char* name;
  int weight;
  void (*run)(Machine&);
};
/// Every kind of instruction that programs of a kind have on a device.
const std::vector<Operator>& catalogue(Kind kind, c10::Device device);

// The catalogue's parts.
std::vector<Operator> pointwise_operators();
std::vector<Operator> shape_operators();
std::vector<Operator> inplace_operators();
std::vector<Operator> layer_operators();
std::vector<Operator> random_operators();
std::vector<Operator> autograd_operators();
/// Of programs on accelerators alone.
std::vector<Operator> accelerator_operators();

// What programs of a kind have beside them.
std::vector<Operator> storage_operators();
std::vector<Operator> hidden_write_operators();
std::vector<Operator> sparse_operators();
std::vector<Operator> script_operators();
std::vector<Operator> double_backward_operators();

bool is_float(const Tensor& t);
uint64_t fingerprint(const Tensor& tensor);

}  // namespace remat::fuzz
