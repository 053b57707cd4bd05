# LibTorch for remat and for its users: part of the build and of the installed package.

# find_package(Torch ...) without its warning that there is no library kineto: PyTorch's packages have it inside
# libtorch_cpu, and TorchConfig.cmake looks for a file of its own. A macro, since Torch's variables are for the caller.
macro(remat_find_torch)
  set(kineto_LIBRARY torch_cpu)
  find_package(Torch ${ARGN})
  unset(kineto_LIBRARY)
endmacro()

# An interface target for LibTorch; find_package(Torch) comes first, or a list of libraries in remat_torch_libraries and
# of definitions in remat_torch_definitions.
#
# It does not define NDEBUG, which would silence the assertions of whoever links it. PyTorch's packages are built with
# NDEBUG, and its headers differ without it: assertions of their own, and a flag of at::RecordFunction that takes up
# padding, so that nothing moves (tests/consumer/debug_user.cpp). remat's own files are compiled with it: see
# CMakeLists.txt.
function(remat_add_torch_target name)  # then perhaps IMPORTED
  add_library(${name} INTERFACE ${ARGN})
  target_include_directories(${name} SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  # First, or calls of std::filesystem land in the copies that LibTorch's libraries export: those of 2.11 crash.
  target_link_libraries(${name} INTERFACE stdc++)
  if(remat_torch_libraries)
    target_link_libraries(${name} INTERFACE ${remat_torch_libraries})
    target_compile_definitions(${name} INTERFACE ${remat_torch_definitions})
  else()
    target_link_libraries(${name} INTERFACE torch torch_cpu c10)
  endif()
  separate_arguments(flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
  target_compile_options(${name} INTERFACE ${flags})
endfunction()
