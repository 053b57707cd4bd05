#include "memory/thread_bytes.h"

namespace remat::memory {

/// Tensors may be freed after a thread's variables are gone: then nothing is counted any more.
struct ThreadBytes::Owner {
  std::shared_ptr<ThreadBytes> bytes = std::make_shared<ThreadBytes>();

  Owner() { current_ = bytes.get(); }
  ~Owner() { current_ = nullptr; }
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;
};

std::shared_ptr<const ThreadBytes> ThreadBytes::of_this_thread() {
  thread_local const Owner owner;
  return owner.bytes;
}

}  // namespace remat::memory
