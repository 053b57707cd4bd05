# `cmake --install`: libraries, public headers (those that src/CMakeLists.txt lists) and the CMake package, for
# find_package(remat). See rematConfig.cmake.in for what users get.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(remat_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/remat)

# Two sets of targets: the planning part can be used where there is no torch.
install(TARGETS remat_plan EXPORT rematPlanTargets FILE_SET HEADERS)
install(EXPORT rematPlanTargets NAMESPACE remat:: DESTINATION ${remat_package_dir})
if(REMAT_TORCH)
  install(TARGETS remat EXPORT rematTargets FILE_SET HEADERS)
  install(EXPORT rematTargets NAMESPACE remat:: DESTINATION ${remat_package_dir})
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/RematTorchTarget.cmake DESTINATION ${remat_package_dir})
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/rematConfig.cmake.in
  ${PROJECT_BINARY_DIR}/cmake/rematConfig.cmake INSTALL_DESTINATION ${remat_package_dir} NO_SET_AND_CHECK_MACRO)
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/rematConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/rematConfig.cmake ${PROJECT_BINARY_DIR}/cmake/rematConfigVersion.cmake
        DESTINATION ${remat_package_dir})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
