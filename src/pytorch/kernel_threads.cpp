#include "pytorch/kernel_threads.h"

#include <string>

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <remat/error.h>

#include "pytorch/raise.h"

namespace remat {
namespace {

/// Functions of the libraries that PyTorch runs threads with; null where it has others.
struct ThreadLibraries {
  void (*set_openmp)(int) = nullptr;
  int (*number_in_pool)() = nullptr;
  int (*is_dynamic)() = nullptr;
  void (*run_on_threads)(void (*)(void*), void*, unsigned, unsigned) = nullptr;
  int (*set_mkl)(int) = nullptr;  ///< returns the number before
  int (*mkl_threads)() = nullptr;

  ThreadLibraries() {
    Dl_info torch;
    if (dladdr(reinterpret_cast<void*>(&at::get_num_threads), &torch) == 0) return;
    void* const library = dlopen(torch.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return;
    const auto find = [&]<class Function>(Function*& function, const char* name) {
      function = reinterpret_cast<Function*>(dlsym(library, name));
    };
    find(set_openmp, "omp_set_num_threads");
    find(number_in_pool, "omp_get_thread_num");
    find(is_dynamic, "omp_get_dynamic");
    find(run_on_threads, "GOMP_parallel");
    find(set_mkl, "MKL_Set_Num_Threads_Local");
    find(mkl_threads, "MKL_Get_Max_Threads");
  }
};

const ThreadLibraries& libraries() {
  static const ThreadLibraries libraries;
  return libraries;
}

/// Of this thread alone: at::set_num_threads() also sets what threads get that begin later.
void set_threads(int threads) {
  if (libraries().set_openmp != nullptr) libraries().set_openmp(threads);
  if (at::get_num_threads() != threads) at::set_num_threads(threads);
}

/// Calls `visit(mode)` on each thread of the pool, with its place in `modes`; not on this thread.
template <class Visit>
void visit_pool(std::vector<FloatingPointMode>& modes, Visit visit) {
  if (libraries().run_on_threads == nullptr || libraries().number_in_pool == nullptr) return;
  if (modes.size() < 2 || at::in_parallel_region()) return;
  struct Data {
    std::vector<FloatingPointMode>& modes;
    Visit& visit;
  } data{modes, visit};
  const auto run = [](void* context) {
    auto& [all, visit_one] = *static_cast<Data*>(context);
    const auto place = static_cast<size_t>(libraries().number_in_pool());
    if (place > 0 && place < all.size()) visit_one(all[place]);
  };
  libraries().run_on_threads(run, &data, static_cast<unsigned>(modes.size()), 0);
}

}  // namespace

ThreadCounts ThreadCounts::current(bool products) {
  const bool asks = products && libraries().set_mkl != nullptr && libraries().mkl_threads != nullptr;
  return {.kernels = at::get_num_threads(), .products = asks ? libraries().mkl_threads() : 0};
}

ThreadCountsScope::ThreadCountsScope(const ThreadCounts& before, const ThreadCounts& counts)
    : before_(before),
      changes_kernels_(before.kernels != counts.kernels),
      changes_products_(counts.products > 0 && before.products != counts.products) {
  if (changes_kernels_) {
    if (counts.kernels < before.kernels) {
      modes_.resize(static_cast<size_t>(before.kernels));
      visit_pool(modes_, [](FloatingPointMode& mode) { mode = FloatingPointMode::current(); });
    }
    set_threads(counts.kernels);
  }
  if (changes_products_) own_of_mkl_ = libraries().set_mkl(counts.products);
}

ThreadCountsScope::~ThreadCountsScope() {
  if (changes_products_) libraries().set_mkl(own_of_mkl_);
  if (!changes_kernels_) return;
  set_threads(before_.kernels);
  visit_pool(modes_, [](const FloatingPointMode& mode) { mode.set(); });
}

void check_threads_are_fixed() {
  if (libraries().is_dynamic == nullptr || libraries().is_dynamic() == 0) return;
  raise(Error("[session] OpenMP takes fewer threads than PyTorch asks for while the machine is busy (OMP_DYNAMIC is " +
              std::to_string(libraries().is_dynamic()) +
              "), so that neither a replay nor plain PyTorch gives the same bits twice; unset OMP_DYNAMIC"));
}

void make_threads(int threads) {
  std::vector<FloatingPointMode> modes(static_cast<size_t>(threads));
  visit_pool(modes, [](FloatingPointMode& /*mode*/) {});
}

}  // namespace remat
