# `make package`: Debian packages of the command (remat) and of the C++ library (libremat-dev). Included last: CPack
# takes down which rules there are. The wheel of the Python package is pip's.
#
# LibTorch is in no Debian package of its version, so that none can be depended on. In its package the command is
# lib/remat/remat, without any path to LibTorch, and bin/remat a script that looks for it: cmake/remat.in.
add_custom_target(remat_packaged)  # all that is in the packages
add_dependencies(remat_packaged remat_command remat remat_plan)
if(TARGET remat_distributed)
  add_dependencies(remat_packaged remat_distributed)
endif()

string(REGEX MATCH "^[0-9]+\\.[0-9]+" remat_torch_series "${Torch_VERSION}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/remat.in ${PROJECT_BINARY_DIR}/cmake/remat @ONLY)
install(PROGRAMS $<TARGET_FILE:remat_command> DESTINATION lib/remat COMPONENT command EXCLUDE_FROM_ALL)
install(CODE "file(RPATH_REMOVE FILE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/remat/remat\")
  execute_process(COMMAND \"${CMAKE_STRIP}\" \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/lib/remat/remat\")"
        COMPONENT command EXCLUDE_FROM_ALL)
install(PROGRAMS ${PROJECT_BINARY_DIR}/cmake/remat DESTINATION bin COMPONENT command EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/remat RENAME copyright
        COMPONENT command EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME remat)
set(CPACK_PACKAGE_CONTACT "the authors of remat <remat@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL command library)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME remat)
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION science)
set(CPACK_DEBIAN_COMMAND_DESCRIPTION "The command: trains models of PyTorch's kinds in the memory that there is.\n\
What does not fit is dropped and recomputed, with the same bits. Built for\n\
LibTorch ${remat_torch_series}, which is looked for when it runs: in the folder REMAT_TORCH,\n\
in python3's package torch, and in /opt/libtorch.")
# What the command is linked with, from the packages that have it; LibTorch's libraries are in none.
set(CPACK_DEBIAN_COMMAND_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${TORCH_INSTALL_PREFIX}/lib")
set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS python3)

set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libremat-dev)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS "cmake (>= 3.25), g++ (>= 4:12)")
set(CPACK_DEBIAN_LIBRARY_DESCRIPTION "For C++ programs: static libraries, headers and the CMake package of remat,\n\
for find_package(remat). To be used with LibTorch ${Torch_VERSION}, for which it is built:\n\
set Torch_DIR or CMAKE_PREFIX_PATH to it.")
include(CPack)
