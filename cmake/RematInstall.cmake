# `cmake --install`: what has been built of the libraries and the command, public headers (those that src/CMakeLists.txt
# lists) and the CMake package, for find_package(remat). See rematConfig.cmake.in for what users get. The Python package
# has its own way: pip.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME library)  # of all rules here, for packages: see RematPackage.cmake
set(remat_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/remat)

# Two sets of targets: the planning part can be used where there is no torch. A target that was not built is left out
# (OPTIONAL), and said so.
function(remat_say_if_not_built target what)
  install(CODE "if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
    message(STATUS \"Not built, so not installed: ${what} (target ${target})\")
  endif()")
endfunction()

install(TARGETS remat_plan EXPORT rematPlanTargets ARCHIVE OPTIONAL FILE_SET HEADERS)
install(EXPORT rematPlanTargets NAMESPACE remat:: DESTINATION ${remat_package_dir})
remat_say_if_not_built(remat_plan "the library remat::plan")
if(REMAT_TORCH)
  install(TARGETS remat EXPORT rematTargets ARCHIVE OPTIONAL FILE_SET HEADERS)
  install(EXPORT rematTargets NAMESPACE remat:: DESTINATION ${remat_package_dir})
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/RematTorchTarget.cmake DESTINATION ${remat_package_dir})
  remat_say_if_not_built(remat "the library remat::remat")
  if(TARGET remat_distributed)
    install(TARGETS remat_distributed EXPORT rematDistributedTargets ARCHIVE OPTIONAL FILE_SET HEADERS)
    install(EXPORT rematDistributedTargets NAMESPACE remat:: DESTINATION ${remat_package_dir})
    remat_say_if_not_built(remat_distributed "the library remat::distributed")
  endif()
endif()
if(TARGET remat_command)
  install(TARGETS remat_command RUNTIME COMPONENT tools OPTIONAL)
  remat_say_if_not_built(remat_command "the command remat")
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/rematConfig.cmake.in
  ${PROJECT_BINARY_DIR}/cmake/rematConfig.cmake INSTALL_DESTINATION ${remat_package_dir}
  PATH_VARS CMAKE_INSTALL_LIBDIR NO_SET_AND_CHECK_MACRO)
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/rematConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/rematConfig.cmake ${PROJECT_BINARY_DIR}/cmake/rematConfigVersion.cmake
        DESTINATION ${remat_package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
