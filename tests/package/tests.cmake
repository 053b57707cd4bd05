# The Debian packages of `make package`, unpacked and used. Not of sanitizers' builds, which nobody packages.
find_program(REMAT_DPKG_DEB dpkg-deb)
if(NOT PROJECT_IS_TOP_LEVEL OR NOT REMAT_INSTALL OR NOT TARGET remat_command OR NOT REMAT_DPKG_DEB OR REMAT_SANITIZE)
  return()
endif()
add_test(NAME debian_packages
  COMMAND ${CMAKE_COMMAND} -D BUILD=${PROJECT_BINARY_DIR} -D WORK=${CMAKE_CURRENT_BINARY_DIR}/packages
          -D CPACK=${CMAKE_CPACK_COMMAND} -D DPKG_DEB=${REMAT_DPKG_DEB} -D TORCH=${TORCH_INSTALL_PREFIX}
          -D Torch_VERSION=${Torch_VERSION} -D COMPILER=${CMAKE_CXX_COMPILER} -P ${CMAKE_CURRENT_LIST_DIR}/run.cmake)
set_tests_properties(debian_packages PROPERTIES LABELS install TIMEOUT 600)
