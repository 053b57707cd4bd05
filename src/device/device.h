// src/device/device.h -- what remat has to know of a kind of device: one interface, and one file for each kind.
//
// cpu.cpp, cuda.cpp (no_cuda.cpp where torch has none), meta.cpp, accelerator.cpp for what comes to PyTorch from
// outside, and unsupported.cpp for the rest. The other folders name no kind of device: they ask here.
#pragma once

#include <optional>

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>

#include "device/device_ledger.h"

namespace remat::device {

/// A kind of device. One object for each, which lives as long as the process. Thread-safe.
class Kind {
 public:
  virtual ~Kind() = default;

  /// Installs what counts the memory of its devices, for the rest of the process, if it is not there. Throws Error
  /// where it cannot be, where something else has taken its place, and where there is no `device`.
  virtual void start_accounting(c10::Device device) const = 0;
  /// Has it been installed?
  virtual bool is_counted() const = 0;
  /// Throws Error where something else has taken its place since.
  virtual void check_accounting() const {}
  /// That of `device`, which lives as long as the process. May install what counts; throws as start_accounting() does.
  virtual memory::DeviceLedger& ledger(c10::Device device) const = 0;
  /// Has its ledger to be told of tensors that are older (Ledger::adopt())?
  virtual bool adopts() const { return false; }
  /// A number that no other allocation has, of memory that was counted; 0 for any other.
  virtual uint64_t serial_of(const c10::StorageImpl& /*storage*/) const noexcept { return 0; }

  /// Is what this thread's stream is given now not run, but kept for a graph?
  virtual bool is_captured() const { return false; }
  /// Have its tensors contents?
  virtual bool has_contents() const { return true; }
  /// Has a budget been held, and bits been compared, on a real one?
  virtual bool is_tried() const { return false; }
  /// `device` as its tensors name theirs: one without an index is the current one.
  virtual c10::Device indexed(c10::Device device) const;
  /// The generator that operators draw from where they are given none; undefined where there is none.
  virtual at::Generator default_generator(c10::Device device) const;
  /// Waits for all kernels on `device`. Throws what PyTorch throws where one has failed.
  virtual void synchronize(c10::Device device) const;
  /// An event with a clock in the stream that this thread uses on `device`; none where that cannot be.
  virtual std::optional<c10::Event> mark(c10::Device device) const;
  /// A new storage of the same device with the same contents: on the CPU with the same alignment to 64 bytes, elsewhere
  /// in the order of the stream that this thread uses there.
  virtual c10::intrusive_ptr<c10::StorageImpl> copy(const c10::StorageImpl& storage) const;
};

const Kind& kind_of(c10::DeviceType type) noexcept;
inline const Kind& kind_of(c10::Device device) noexcept { return kind_of(device.type()); }

/// See Kind::copy().
inline c10::intrusive_ptr<c10::StorageImpl> copy_of(const c10::StorageImpl& storage) {
  return kind_of(storage.device_type()).copy(storage);
}

/// Where this code runs, and reads and writes tensors at their addresses.
inline constexpr c10::DeviceType kHost = c10::kCPU;
inline bool is_host(c10::DeviceType type) noexcept { return type == kHost; }
inline bool is_host(c10::Device device) noexcept { return is_host(device.type()); }
inline bool is_on_host(const c10::StorageImpl& storage) noexcept { return is_host(storage.device_type()); }
/// Do kernels run later, in the order of streams, in memory that the host does not see?
inline bool has_streams(c10::DeviceType type) noexcept { return type != kHost && type != c10::kMeta; }
inline bool has_streams(c10::Device device) noexcept { return has_streams(device.type()); }

/// Has `device` streams, or may work of any device have some, where none is named?
bool may_have_streams(std::optional<c10::Device> device);

// Each in its file.
const Kind& cpu();
const Kind& cuda();
const Kind& meta();
const Kind& accelerator();
const Kind& unsupported();

}  // namespace remat::device
