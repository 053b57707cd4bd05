# What a release makes, made and used: the site, the wheel, the Debian packages. Not of sanitizers' builds, which nobody
# packages.
if(NOT PROJECT_IS_TOP_LEVEL OR NOT REMAT_INSTALL OR REMAT_SANITIZE)
  return()
endif()

# Any warning of Doxygen's or Sphinx's is an error.
add_test(NAME site COMMAND ${PROJECT_SOURCE_DIR}/scripts/docs)
set_tests_properties(site PROPERTIES LABELS install TIMEOUT 600
                     SKIP_REGULAR_EXPRESSION "doxygen is missing|pip could not install")

# The bundle for a machine with a GPU.
if(REMAT_INTERPRETER AND REMAT_TORCH)
  add_test(NAME gpu_bundle COMMAND ${REMAT_INTERPRETER} ${CMAKE_CURRENT_LIST_DIR}/gpu_bundle_test.py)
  set_tests_properties(gpu_bundle PROPERTIES LABELS install TIMEOUT 600
                       SKIP_REGULAR_EXPRESSION "pip could not fetch|this is no clone")
endif()

# All of the wheel but the compiler, which takes ten minutes and has made this build's module from the same sources.
if(TARGET remat_python)
  execute_process(COMMAND ${Python_EXECUTABLE} -c "import scikit_build_core, wheel" RESULT_VARIABLE no_builder ERROR_QUIET)
  if(no_builder)
    message(WARNING "remat: ${Python_EXECUTABLE} has no scikit-build-core or no wheel; the wheel will not be tested; "
                    "`make setup` installs them")
  else()
    add_test(NAME wheel COMMAND ${CMAKE_CURRENT_LIST_DIR}/wheel ${Python_EXECUTABLE} ${PROJECT_BINARY_DIR})
    set_tests_properties(wheel PROPERTIES LABELS install TIMEOUT 600)
  endif()
endif()

# The packages of `make package`, unpacked and used.
find_program(REMAT_DPKG_DEB dpkg-deb)
if(NOT TARGET remat_command OR NOT REMAT_DPKG_DEB)
  return()
endif()
add_test(NAME debian_packages
  COMMAND ${CMAKE_COMMAND} -D BUILD=${PROJECT_BINARY_DIR} -D WORK=${CMAKE_CURRENT_BINARY_DIR}/packages
          -D CPACK=${CMAKE_CPACK_COMMAND} -D DPKG_DEB=${REMAT_DPKG_DEB} -D TORCH=${TORCH_INSTALL_PREFIX}
          -D Torch_VERSION=${Torch_VERSION} -D COMPILER=${CMAKE_CXX_COMPILER} -P ${CMAKE_CURRENT_LIST_DIR}/run.cmake)
set_tests_properties(debian_packages PROPERTIES LABELS install TIMEOUT 600)
