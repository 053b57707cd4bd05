# Finds LibTorch: Torch_DIR or CMAKE_PREFIX_PATH if given; where pip builds remat, in the environment that it is for
# (pip hides that from builds, but its path is known); else in the virtual environment that `make setup` fills.
if(NOT Torch_DIR AND SKBUILD)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_path('platlib'))"
                  OUTPUT_VARIABLE remat_site_packages OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(remat_torch_dir "${remat_site_packages}/torch/share/cmake/Torch")
  if(NOT EXISTS "${remat_torch_dir}")
    message(FATAL_ERROR "remat: no torch in ${remat_site_packages}; install torch first (its CPU or CUDA version, as "
                        "you will use it), then remat")
  endif()
  set(Torch_DIR "${remat_torch_dir}" CACHE PATH "")
elseif(NOT Torch_DIR)
  file(GLOB remat_torch_dirs "${CMAKE_CURRENT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch/share/cmake/Torch")
  if(remat_torch_dirs)
    list(GET remat_torch_dirs 0 Torch_DIR)
  endif()
endif()

include(RematTorchTarget)
get_filename_component(remat_torch_prefix "${Torch_DIR}/../../.." ABSOLUTE)
if(Torch_DIR AND NOT TARGET torch AND EXISTS "${remat_torch_prefix}/lib/libc10_cuda.so")
  include(RematTorchCuda)
else()
  # Torch's targets name each other in generator expressions, which are evaluated where they are used: in the project
  # above, where remat is a subdirectory.
  set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
  remat_find_torch(REQUIRED)
  unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)
endif()
remat_add_torch_target(remat_torch)
