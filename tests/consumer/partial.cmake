# cmake -D WORK=... -D COMPILER=... -D REMAT_TORCH=... -D Torch_DIR=... -P partial.cmake
# `cmake --install` after builds of a part: of nothing, then of the planning library alone, in a configuration that one
# option makes library-only. A project finds what was built, and is told what was not.
cmake_path(SET source NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../..)
set(prefix ${WORK}/prefix)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# A project that asks find_package() for `components`: it is configured, or refused with `message` (empty: it is not).
function(find_remat components message)
  file(WRITE ${WORK}/user/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(remat 0.1 REQUIRED ${components})
if(NOT TARGET remat::plan)
  message(FATAL_ERROR \"no remat::plan\")
endif()
if(TARGET remat::remat)
  message(FATAL_ERROR \"remat::remat, which nobody built\")
endif()
")
  file(REMOVE_RECURSE ${WORK}/user/build)
  execute_process(COMMAND ${CMAKE_COMMAND} -S ${WORK}/user -B ${WORK}/user/build -G Ninja -D CMAKE_PREFIX_PATH=${prefix}
                          -D CMAKE_CXX_COMPILER=${COMPILER}
                  RESULT_VARIABLE result ERROR_VARIABLE error OUTPUT_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " error "${error}")
  if(message STREQUAL "" AND NOT result EQUAL 0)
    message(FATAL_ERROR "find_package(remat ${components}) failed:\n${output}${error}")
  elseif(NOT message STREQUAL "" AND (result EQUAL 0 OR NOT error MATCHES "${message}"))
    message(FATAL_ERROR "find_package(remat ${components}): ${result}\n${output}${error}\nexpected: ${message}")
  endif()
endfunction()

function(expect_targets)  # the configuration has these and no other executables or libraries
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/build --target help OUTPUT_VARIABLE help
                          COMMAND_ERROR_IS_FATAL ANY)
  foreach(target plan_tests cli_tests remat_command remat_python bench_step example_train)
    if(help MATCHES "(^|\n)${target}: phony")
      message(FATAL_ERROR "a library-only configuration has the target ${target}")
    endif()
  endforeach()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} -S ${source} -B ${WORK}/build -G Ninja -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_FLAGS_RELEASE=-O0 -D REMAT_LIBRARY_ONLY=ON
    -D CMAKE_CXX_COMPILER=${COMPILER} -D REMAT_TORCH=${REMAT_TORCH} -D Torch_DIR=${Torch_DIR})
expect_targets()
set(install ${CMAKE_COMMAND} --install ${WORK}/build --prefix ${prefix})
run(${install})
find_remat("" "remat::plan was not built before the package was installed")
run(${CMAKE_COMMAND} --build ${WORK}/build --target remat_plan)
run(${install})
find_remat("" "")
find_remat("COMPONENTS plan" "")
find_remat("COMPONENTS remat" "remat::remat was not built before the package was installed \\(its target is remat\\)")
