// src/replay/saved_tensor.h -- what autograd holds in the place of a tensor that it saved for backward.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <remat/extension.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include "observe/recorder.h"
#include "tape/tape.h"

namespace remat {

/// Holds one saved tensor: as an alias (as autograd would keep it), as a reference to a value of a tape and a view of
/// it, or as the parts of a tensor that wraps others, each held in one of these ways.
class SavedTensor final : public torch::autograd::SavedVariableHooks, public UnboundSave {
 public:
  explicit SavedTensor(std::shared_ptr<Tape> tape) : tape_(std::move(tape)) {}
  ~SavedTensor() override;
  SavedTensor(const SavedTensor&) = delete;
  SavedTensor& operator=(const SavedTensor&) = delete;

  void call_pack_hook(const at::Tensor& tensor) override;
  at::Tensor call_unpack_hook() override;

  void bind() override;

 private:
  /// Refers from now on to the tape's value that holds `tensor`. Returns false where there is none that may be dropped.
  bool bind_to(const at::Tensor& tensor);
  /// Saves the parts of a tensor that wraps others. Returns false for any other tensor.
  bool take_apart(const at::Tensor& tensor);
  /// Does what call_unpack_hook() does, without a check of the version.
  at::Tensor unpack();
  void check_version() const;
  void check_data() const;
  /// "a tensor that was saved for backward, a result of aten::sin, of shape [2, 3]"
  std::string description() const;

  std::shared_ptr<Tape> tape_;
  at::Tensor alias_;
  std::vector<std::unique_ptr<SavedTensor>> parts_;
  std::function<at::Tensor(const std::vector<at::Tensor>&)> assemble_;
  const c10::TensorImpl* saved_ = nullptr;  ///< the tensor's address: not held
  int64_t saved_at_ = 0;                    ///< of Tape::saves
  ValueId value_ = kNoId;
  TensorView view_;
  c10::VariableVersion version_counter_{c10::VariableVersion::DISABLED};
  uint32_t version_ = 0;
  bool needs_gradient_ = false;
  bool unbound_ = false;      ///< registered with the recorder, alias_ holds the tensor until bind()
  uint32_t unpacked_in_ = 0;  ///< the value's round in which it was unpacked last
};

/// Returns what extension::set_tensor_taker() has set; null where it has set nothing.
std::atomic<extension::TensorTaker>& tensor_taker();

/// Makes autograd ask this thread's recorder how to save a tensor. Once per process; thread-safe.
void install_saved_tensors();

}  // namespace remat
