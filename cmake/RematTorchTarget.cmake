# An interface target for LibTorch as every file that includes it must be compiled. Part of the build and of the
# installed package; find_package(Torch) comes first, or a list of libraries in remat_torch_libraries.
#
# at::RecordFunction has members that depend on NDEBUG, and LibTorch is built with it: every file that includes torch
# needs it in every build type, Debug and sanitizers included.
function(remat_add_torch_target name)  # then perhaps IMPORTED
  add_library(${name} INTERFACE ${ARGN})
  target_include_directories(${name} SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  # First, or calls of std::filesystem land in the copies that LibTorch's libraries export: those of 2.11 crash.
  target_link_libraries(${name} INTERFACE stdc++)
  if(remat_torch_libraries)
    target_link_libraries(${name} INTERFACE ${remat_torch_libraries})
  else()
    target_link_libraries(${name} INTERFACE torch torch_cpu c10)
  endif()
  target_compile_definitions(${name} INTERFACE NDEBUG)
  separate_arguments(flags UNIX_COMMAND "${TORCH_CXX_FLAGS}")
  target_compile_options(${name} INTERFACE ${flags})
endfunction()
