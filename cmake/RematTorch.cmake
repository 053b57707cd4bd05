# Finds LibTorch: Torch_DIR or CMAKE_PREFIX_PATH if given, else the virtual environment that `make setup` fills.
if(NOT Torch_DIR)
  file(GLOB remat_torch_dirs "${CMAKE_CURRENT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch/share/cmake/Torch")
  if(remat_torch_dirs)
    list(GET remat_torch_dirs 0 Torch_DIR)
  endif()
endif()
find_package(Torch REQUIRED)

# at::RecordFunction has members that depend on NDEBUG, and LibTorch is built with it: every file that includes torch
# needs it in every build type, Debug and sanitizers included.
add_library(remat_torch INTERFACE)
target_include_directories(remat_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
target_link_libraries(remat_torch INTERFACE torch torch_cpu c10)
target_compile_definitions(remat_torch INTERFACE NDEBUG)
separate_arguments(remat_torch_flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
target_compile_options(remat_torch INTERFACE ${remat_torch_flags})
