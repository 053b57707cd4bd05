# Finds LibTorch: Torch_DIR or CMAKE_PREFIX_PATH if given, else the virtual environment that `make setup` fills.
if(NOT Torch_DIR)
  file(GLOB remat_torch_dirs "${CMAKE_CURRENT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch/share/cmake/Torch")
  if(remat_torch_dirs)
    list(GET remat_torch_dirs 0 Torch_DIR)
  endif()
endif()
# Torch's targets name each other in generator expressions, which are evaluated where they are used: in the project
# above, where remat is a subdirectory.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
find_package(Torch REQUIRED)
unset(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL)

include(RematTorchTarget)
remat_add_torch_target(remat_torch)
