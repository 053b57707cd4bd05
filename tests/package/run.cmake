# cmake -D BUILD=... -D WORK=... -D CPACK=... -D DPKG_DEB=... -D TORCH=... -D Torch_VERSION=... -D COMPILER=... -P run.cmake
# Makes the Debian packages of BUILD, unpacks them under WORK, where nothing else is, and uses what is in them.
set(root ${WORK}/root)

function(run result_variable output_variable)  # what a command says on both channels, and its result
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(${result_variable} "${result}" PARENT_SCOPE)
  set(${output_variable} "${output}" PARENT_SCOPE)
endfunction()

function(expect wanted pattern)  # a command that ends with the result `wanted` and says something like `pattern`
  run(result output ${ARGN})
  if(NOT result EQUAL wanted OR NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "${ARGN} ended with ${result} and said:\n${output}\nexpected: ${wanted}, ${pattern}")
  endif()
endfunction()

function(expect_field package field pattern)
  expect(0 "${pattern}" ${DPKG_DEB} -f ${package} ${field})
endfunction()

file(REMOVE_RECURSE ${WORK})
run(result output ${CPACK} --config ${BUILD}/CPackConfig.cmake -B ${WORK})
if(NOT result EQUAL 0)
  message(FATAL_ERROR "cpack ended with ${result}:\n${output}")
endif()
file(GLOB command_package ${WORK}/remat_*.deb)
file(GLOB library_package ${WORK}/libremat-dev_*.deb)
foreach(package ${command_package} ${library_package})
  expect(0 "" ${DPKG_DEB} -x ${package} ${root})
endforeach()

# What dpkg has to know: the libraries of Debian that the command is linked with, and none of LibTorch's.
expect_field(${command_package} Depends "libc6 .*libpng16-16.*libsentencepiece0.*libstdc\\+\\+6.*libutf8proc2")
expect_field(${command_package} Description "within a byte budget\n The command: trains models")
run(result dependencies ${DPKG_DEB} -f ${command_package} Depends)
if(dependencies MATCHES "torch|c10")
  message(FATAL_ERROR "the command depends on a package of LibTorch, which there is not: ${dependencies}")
endif()

# The command has no path of this machine, and finds LibTorch by itself or says which one it wants.
string(REGEX MATCH "^[0-9]+\\.[0-9]+" series ${Torch_VERSION})
file(STRINGS ${root}/usr/lib/remat/remat paths REGEX "${TORCH}/lib")
if(paths)
  message(FATAL_ERROR "the packaged command has a path of this machine: ${paths}")
endif()
set(remat ${CMAKE_COMMAND} -E env --unset=LD_LIBRARY_PATH)
expect(0 "[0-9]+\\.[0-9]+\\.[0-9]+" ${remat} REMAT_TORCH=${TORCH} ${root}/usr/bin/remat --version)
expect(2 "remat: .*no-such-command" ${remat} REMAT_TORCH=${TORCH} ${root}/usr/bin/remat "no-such-command")
expect(1 "LibTorch ${series}; there is none in ${WORK}/nowhere; install it" ${remat} REMAT_TORCH=${WORK}/nowhere
       ${root}/usr/bin/remat --version)
# As in a virtual environment: python3's package torch; and one of another version.
file(WRITE ${WORK}/bin/python3 "#!/bin/sh\necho \"$PACKAGE_TORCH\"\n")
file(CHMOD ${WORK}/bin/python3 PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
set(path "PATH=${WORK}/bin:$ENV{PATH}")
expect(0 "[0-9]+\\.[0-9]+\\.[0-9]+" ${remat} --unset=REMAT_TORCH ${path} PACKAGE_TORCH=${TORCH} ${root}/usr/bin/remat --version)
file(WRITE ${WORK}/torch/version.py "__version__ = '1.13.1+cpu'\n")
file(WRITE ${WORK}/torch/lib/libtorch_cpu.so "")
expect(1 "${WORK}/torch has 1.13.1.cpu" ${remat} --unset=REMAT_TORCH ${path} PACKAGE_TORCH=${WORK}/torch
       ${root}/usr/bin/remat --version)

# The library is found where it was unpacked. That programs can be built with it is what installed_package tests.
file(WRITE ${WORK}/user/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(remat 0.1 REQUIRED COMPONENTS plan)
get_target_property(folder remat::plan INTERFACE_INCLUDE_DIRECTORIES)
message(STATUS \"headers in \${folder}\")
")
expect(0 "headers in [^\n]*${root}/usr/include" ${CMAKE_COMMAND} -S ${WORK}/user -B ${WORK}/user/build -G Ninja
       -D CMAKE_PREFIX_PATH=${root}/usr -D CMAKE_CXX_COMPILER=${COMPILER})
