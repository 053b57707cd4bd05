#include "cli/training_state.h"

#include <exception>
#include <functional>
#include <optional>
#include <string>

#include <torch/torch.h>

#include <remat/error.h>
#include <remat/file_memory.h>
#include <remat/paged_optimizer.h>

#include "cli/checkpoint_file.h"
#include "cli/fingerprint.h"
#include "pretrained/finite.h"
#include "zoo/model.h"

namespace remat::cli {
namespace {

using Tensors = c10::Dict<std::string, at::Tensor>;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

std::string fingerprint_of(const NamedTensors& frozen) {
  std::string bits;
  for (const auto& [name, tensor] : frozen) {
    const auto each = fingerprint(name, tensor);
    bits += each.name + ' ' + std::to_string(each.low) + ' ' + std::to_string(each.high) + '\n';
  }
  return fingerprint(bits);
}

NamedTensors parameters_of(const zoo::Model& model, bool trained) {
  NamedTensors tensors;
  for (const auto& item : model.named_parameters()) {
    if (item.value().requires_grad() == trained) tensors.emplace_back(item.key(), item.value());
  }
  return tensors;
}

/// Trained parameters, and buffers, which forward passes change.
NamedTensors changing_tensors(const zoo::Model& model) {
  NamedTensors tensors = trained_parameters(model);
  for (const auto& item : model.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

void write_tensors(OutputArchive& archive, const NamedTensors& tensors) {
  Tensors dict;
  for (const auto& [name, tensor] : tensors) dict.insert(name, tensor.detach());
  archive.write("trained", c10::IValue(dict));
}

void read_tensors(InputArchive& archive, const NamedTensors& tensors) {
  c10::IValue trained;
  archive.read("trained", trained);
  const auto dict = c10::impl::toTypedDict<std::string, at::Tensor>(trained.toGenericDict());
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : tensors) at::Tensor(tensor).copy_(dict.at(name));
}

void check_frozen(InputArchive& archive, const NamedTensors& frozen) {
  c10::IValue theirs;
  archive.read("frozen", theirs);
  if (theirs.toStringRef() == fingerprint_of(frozen)) return;
  throw Error(
      "[checkpoint] its parameters were trained beside other frozen weights than the model has now; give the "
      "directory of that time, or start anew without --resume");
}

void write_generator(OutputArchive& archive) {
  archive.write("generator", default_generator().get_state(), /*is_buffer=*/true);
}

void read_generator(InputArchive& archive) {
  at::Tensor generator;
  archive.read("generator", generator, /*is_buffer=*/true);
  default_generator().set_state(generator);
}

/// Does `work`, whose tensors are made in files where the optimizer's state is in one: there may be no memory for all
/// of it. Where the disk has no room for them either, in memory after all: `work` is done once more from its beginning.
void place_or_memory(const torch::optim::Optimizer& optimizer, const std::function<void()>& work) {
  const PagedOptimizer* const paged = PagedOptimizer::of(optimizer);
  if (paged == nullptr) return work();
  try {
    const FileMemory place(paged->directory());
    return work();
  } catch (const Error&) {
  }
  work();
}

void move_to_memory(at::Tensor& tensor) {
  if (FileMemory::holds(tensor)) tensor.set_data(tensor.detach().clone());
}

/// Does `work` while the optimizer has all of its state.
void with_state(const torch::optim::Optimizer& optimizer, const std::function<void()>& work) {
  PagedOptimizer* const paged = PagedOptimizer::of(optimizer);
  paged == nullptr ? work() : paged->with_state(work);
}

void write_rest(OutputArchive& archive, const torch::optim::Optimizer& optimizer, int64_t steps_done) {
  place_or_memory(optimizer, [&] {
    OutputArchive optimizer_archive;
    with_state(optimizer, [&] { optimizer.save(optimizer_archive); });
    archive.write("optimizer", optimizer_archive);
  });
  write_generator(archive);
  archive.write("steps_done", at::tensor(steps_done, at::kLong), /*is_buffer=*/true);
}

int64_t read_rest(InputArchive& archive, torch::optim::Optimizer& optimizer) {
  InputArchive optimizer_archive;
  archive.read("optimizer", optimizer_archive);
  with_state(optimizer, [&] { optimizer.load(optimizer_archive); });
  at::Tensor steps_done;
  archive.read("steps_done", steps_done, /*is_buffer=*/true);
  read_generator(archive);
  return steps_done.item<int64_t>();
}

/// The archive goes on writing in its destructor, where an exception would end the process: an error waits outside.
void write_all(OutputArchive& archive, const WriteBytes& write) {
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

void open(InputArchive& archive, const StatePart& part) {
  archive.load_from([&](uint64_t offset, void* data, size_t size) { return part.read(offset, data, size); },
                    [&] { return part.size; });
}

}  // namespace

at::Generator default_generator() { return at::detail::getDefaultCPUGenerator(); }

StatePart payload_of(const CheckpointReader& file) {
  return {.read = [&file](size_t offset, void* data, size_t size) { return file.read(offset, data, size); },
          .size = file.payload_size()};
}

void check_finite(const NamedTensors& parameters, const std::string& path) {
  pretrained::FiniteCheck check;
  for (const auto& [name, parameter] : parameters) check.look_at(name, parameter);
  if (check.all_finite()) return;
  throw Error("[checkpoint] '" + path + "' has parameters with NaN or infinite elements, which no loss comes of: " +
              check.found() + "; its training has diverged: start anew with a lower --lr");
}

NamedTensors trained_parameters(const zoo::Model& model) { return parameters_of(model, /*trained=*/true); }

void save_state(const zoo::Model& model, const torch::optim::Optimizer& optimizer, int64_t steps_done,
                const WriteBytes& write) {
  const NamedTensors frozen = parameters_of(model, /*trained=*/false);
  if (!frozen.empty()) return save_tensors_state(changing_tensors(model), frozen, optimizer, steps_done, write);
  const auto write_model = [&](OutputArchive& archive) {
    OutputArchive whole;
    model.save(whole);
    archive.write("model", whole);
  };
  save_archive(write_model, optimizer, steps_done, write);
}

int64_t load_state(zoo::Model& model, torch::optim::Optimizer& optimizer, const StatePart& part) {
  const NamedTensors frozen = parameters_of(model, /*trained=*/false);
  if (!frozen.empty()) return load_tensors_state(changing_tensors(model), frozen, optimizer, part);
  const auto read_model = [&](InputArchive& archive) {
    InputArchive whole;
    archive.read("model", whole);
    model.load(whole);  // the archive's own tensors, which may be in files
    for (auto& parameter : model.parameters()) move_to_memory(parameter);
    for (auto& buffer : model.buffers()) move_to_memory(buffer);
  };
  return load_archive(read_model, optimizer, part);
}

void save_tensors_state(const NamedTensors& changing, const NamedTensors& frozen,
                        const torch::optim::Optimizer& optimizer, int64_t steps_done, const WriteBytes& write) {
  const auto write_tensors_of = [&](OutputArchive& archive) {
    if (!frozen.empty()) archive.write("frozen", c10::IValue(fingerprint_of(frozen)));
    write_tensors(archive, changing);
  };
  save_archive(write_tensors_of, optimizer, steps_done, write);
}

int64_t load_tensors_state(const NamedTensors& changing, const NamedTensors& frozen, torch::optim::Optimizer& optimizer,
                           const StatePart& part) {
  const auto read_tensors_of = [&](InputArchive& archive) {
    if (!frozen.empty()) check_frozen(archive, frozen);
    read_tensors(archive, changing);
  };
  return load_archive(read_tensors_of, optimizer, part);
}

void save_archive(const std::function<void(OutputArchive&)>& write_own, const torch::optim::Optimizer& optimizer,
                  int64_t steps_done, const WriteBytes& write) {
  OutputArchive archive;
  write_own(archive);
  write_rest(archive, optimizer, steps_done);
  write_all(archive, write);
}

int64_t load_archive(const std::function<void(InputArchive&)>& read_own, torch::optim::Optimizer& optimizer,
                     const StatePart& part) {
  std::optional<InputArchive> archive;
  place_or_memory(optimizer, [&] { open(archive.emplace(), part); });
  read_own(*archive);
  return read_rest(*archive, optimizer);
}

void save_generator(const WriteBytes& write) {
  OutputArchive archive;
  write_generator(archive);
  write_all(archive, write);
}

void load_generator(const StatePart& part) {
  InputArchive archive;
  open(archive, part);
  read_generator(archive);
}

}  // namespace remat::cli
