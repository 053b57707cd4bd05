# cmake -D BUILD=... -D CONFIG=... -D WORK=... -D REMAT_TORCH=... -D COMPILER=... -P run.cmake
# Installs BUILD into a prefix under WORK; configures, builds and runs the project in this folder against it, as Debug:
# its assertions must fire.
# With -D Torch_DIR=... -D SUBDIRECTORY=ON: takes remat's sources as a subdirectory instead.
cmake_path(SET source NORMALIZE ${CMAKE_CURRENT_LIST_DIR}/../..)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(run_expecting_failure message)  # and a `message` on its standard error
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT RESULT_VARIABLE result ERROR_VARIABLE error)
  if(result EQUAL 0 OR NOT error MATCHES "${message}")
    message(FATAL_ERROR "${ARGN} ended with ${result} and said:\n${error}\nexpected: ${message}")
  endif()
endfunction()

function(check_headers)  # every public header is installed, and nothing else
  file(GLOB_RECURSE expected RELATIVE ${source}/include ${source}/include/remat/*.h)
  file(GLOB_RECURSE installed RELATIVE ${WORK}/prefix/include ${WORK}/prefix/include/*)
  if(REMAT_TORCH AND NOT "${expected}" STREQUAL "${installed}")
    message(FATAL_ERROR "installed: ${installed}\nin include/: ${expected}\nmend the lists in src/CMakeLists.txt")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
set(configure ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR} -B ${WORK}/build -G Ninja -D CMAKE_BUILD_TYPE=Debug
              -D CMAKE_CXX_COMPILER=${COMPILER} -D REMAT_TORCH=${REMAT_TORCH})
set(build ${CMAKE_COMMAND} --build ${WORK}/build --target)
if(SUBDIRECTORY)
  # Building all of remat once more would take minutes: what needs no torch has to do.
  run(${configure} -D REMAT_SOURCE=${source} -D Torch_DIR=${Torch_DIR})
  run(${build} plan_user)
else()
  run(${CMAKE_COMMAND} --install ${BUILD} --config ${CONFIG} --prefix ${WORK}/prefix)
  check_headers()
  run(${configure} -D CMAKE_PREFIX_PATH=${WORK}/prefix)
  run(${build} all)
  if(REMAT_TORCH)
    run(${WORK}/build/train)
    run(${WORK}/build/debug_user)
    run_expecting_failure("an assertion of the user" ${WORK}/build/debug_user fail)
    if(EXISTS ${WORK}/prefix/bin/remat)  # it must find LibTorch by itself
      run(${CMAKE_COMMAND} -E env --unset=LD_LIBRARY_PATH ${WORK}/prefix/bin/remat --version)
      # The application is a user's project too. Building all of it once more would take minutes: that everything which
      # its command needs is found has to do, and its smallest library.
      run(${CMAKE_COMMAND} -S ${source}/app -B ${WORK}/app -G Ninja -D CMAKE_PREFIX_PATH=${WORK}/prefix
          -D CMAKE_CXX_COMPILER=${COMPILER})
      run(${CMAKE_COMMAND} --build ${WORK}/app --target remat_common)
      execute_process(COMMAND ${CMAKE_COMMAND} --build ${WORK}/app --target remat_command -- -n
                      OUTPUT_VARIABLE steps COMMAND_ERROR_IS_FATAL ANY)
      if(NOT steps MATCHES "Linking CXX executable remat")
        message(FATAL_ERROR "app/ alone would not link the command:\n${steps}")
      endif()
    endif()
  endif()
endif()
run(${WORK}/build/plan_user)
