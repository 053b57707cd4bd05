#include "cli/training_state.h"

#include <exception>
#include <string>

#include <torch/torch.h>

#include <remat/error.h>

#include "cli/fingerprint.h"
#include "zoo/model.h"

namespace remat::cli {
namespace {

using Tensors = c10::Dict<std::string, at::Tensor>;

at::Generator default_generator() { return at::detail::getDefaultCPUGenerator(); }

/// Of the frozen parameters; empty where there are none.
std::string frozen_fingerprint(const zoo::Model& model) {
  std::string bits;
  for (const auto& item : model.named_parameters()) {
    if (item.value().requires_grad()) continue;
    const auto each = fingerprint(item.key(), item.value());
    bits += each.name + ' ' + std::to_string(each.low) + ' ' + std::to_string(each.high) + '\n';
  }
  return bits.empty() ? bits : fingerprint(bits);
}

/// Trained parameters, and buffers, which forward passes change.
Tensors changing_tensors(const zoo::Model& model) {
  Tensors tensors;
  for (const auto& item : model.named_parameters()) {
    if (item.value().requires_grad()) tensors.insert(item.key(), item.value().detach());
  }
  for (const auto& item : model.named_buffers()) tensors.insert(item.key(), item.value());
  return tensors;
}

}  // namespace

void save_state(const zoo::Model& model, const torch::optim::Optimizer& optimizer, int64_t steps_done,
                const WriteBytes& write) {
  torch::serialize::OutputArchive archive, whole, optimizer_archive;
  if (const auto frozen = frozen_fingerprint(model); frozen.empty()) {
    model.save(whole);
    archive.write("model", whole);
  } else {
    archive.write("frozen", c10::IValue(frozen));
    archive.write("trained", c10::IValue(changing_tensors(model)));
  }
  optimizer.save(optimizer_archive);
  archive.write("optimizer", optimizer_archive);
  archive.write("generator", default_generator().get_state(), /*is_buffer=*/true);
  archive.write("steps_done", at::tensor(steps_done, at::kLong), /*is_buffer=*/true);
  // The archive goes on writing in its destructor, where an exception would end the process: an error waits outside.
  std::exception_ptr error;
  archive.save_to([&](const void* data, size_t size) {
    try {
      if (!error) write(data, size);
    } catch (...) {
      error = std::current_exception();
    }
    return size;
  });
  if (error) std::rethrow_exception(error);
}

int64_t load_state(zoo::Model& model, torch::optim::Optimizer& optimizer, const ReadBytes& read, size_t total_size) {
  torch::serialize::InputArchive archive, whole, optimizer_archive;
  archive.load_from([&](uint64_t offset, void* data, size_t size) { return read(offset, data, size); },
                    [&] { return total_size; });
  if (const auto frozen = frozen_fingerprint(model); frozen.empty()) {
    archive.read("model", whole);
    model.load(whole);
  } else {
    c10::IValue theirs, trained;
    archive.read("frozen", theirs);
    if (theirs.toStringRef() != frozen) {
      throw Error(
          "[checkpoint] its parameters were trained beside other frozen weights than the model has now; give the "
          "directory of that time, or start anew without --resume");
    }
    archive.read("trained", trained);
    const auto tensors = c10::impl::toTypedDict<std::string, at::Tensor>(trained.toGenericDict());
    const torch::NoGradGuard no_grad;
    for (const auto& entry : changing_tensors(model)) entry.value().copy_(tensors.at(entry.key()));
  }
  archive.read("optimizer", optimizer_archive);
  optimizer.load(optimizer_archive);
  at::Tensor generator, steps_done;
  archive.read("generator", generator, /*is_buffer=*/true);
  archive.read("steps_done", steps_done, /*is_buffer=*/true);
  default_generator().set_state(generator);
  return steps_done.item<int64_t>();
}

}  // namespace remat::cli
