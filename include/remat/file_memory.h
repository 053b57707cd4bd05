// remat/file_memory.h -- frozen weights in a file that is mapped, not in memory.
//
//   std::shared_ptr<Model> model;
//   {
//     const remat::FileMemory memory("/scratch");
//     model = std::make_shared<Model>();  // and whatever else gives its parameters their contents
//   }
//   remat::FileMemory::settle(model->parameters());
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace remat {

/// While it lives, CPU tensors of 64 KiB or more that its thread allocates are mapped files without a name: what is
/// written to them is written to the disk, and their pages are the kernel's to drop where memory runs short, and to
/// read again when they are used. Budgets do not count them. Operators compute the same bits with them: they are
/// aligned as other tensors are, or more.
///
/// For tensors that are read and not written, as the weights beside LoRA's factors: each step that changes them is a
/// step that writes them to the disk. A tensor's file is gone with its memory, and when the process ends. Children of
/// fork() share it: what they write, the parent reads. A disk that fails to give a page ends the process (SIGBUS). One
/// at a time in a thread; other threads are not concerned, and may destroy it.
class FileMemory {
 public:
  /// Starts accounting, as memory::start_accounting(). Throws Error where no file can be made in `directory`, and where
  /// this thread has a FileMemory; later each allocation throws it for which the disk has no room.
  explicit FileMemory(const std::string& directory);
  ~FileMemory();
  FileMemory(const FileMemory&) = delete;
  FileMemory& operator=(const FileMemory&) = delete;

  /// Is its memory a file's?
  static bool holds(const at::Tensor& tensor);
  /// Writes what was changed of those that are, and takes their pages from the process until they are used again. To be
  /// called when the contents are final. Throws Error where a write fails.
  static void settle(const std::vector<at::Tensor>& tensors);

 private:
  class Source;
  const std::shared_ptr<Source> source_;  ///< of whose end its thread learns, whoever destroys it
};

}  // namespace remat
