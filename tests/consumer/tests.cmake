# A user's project against the installed package, and with remat as a subdirectory of it.
if(NOT REMAT_INSTALL)
  return()
endif()
set(arguments -D BUILD=${PROJECT_BINARY_DIR} -D CONFIG=$<CONFIG> -D COMPILER=${CMAKE_CXX_COMPILER}
              -D REMAT_TORCH=${REMAT_TORCH} -D Torch_DIR=${Torch_DIR})
set(script ${CMAKE_CURRENT_LIST_DIR}/run.cmake)
add_test(NAME installed_package
  COMMAND ${CMAKE_COMMAND} ${arguments} -D WORK=${CMAKE_CURRENT_BINARY_DIR}/consumer -P ${script})
add_test(NAME subdirectory
  COMMAND ${CMAKE_COMMAND} ${arguments} -D WORK=${CMAKE_CURRENT_BINARY_DIR}/parent -D SUBDIRECTORY=ON -P ${script})
add_test(NAME partial_install
  COMMAND ${CMAKE_COMMAND} ${arguments} -D WORK=${CMAKE_CURRENT_BINARY_DIR}/partial
          -P ${CMAKE_CURRENT_LIST_DIR}/partial.cmake)
set_tests_properties(installed_package partial_install subdirectory PROPERTIES LABELS install TIMEOUT 900 COST 200)
# Planning alone needs nothing of what tokenizers and data do, as where it is compiled for another processor.
add_test(NAME planning_alone
  COMMAND ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR} -B ${CMAKE_CURRENT_BINARY_DIR}/planning_alone -G ${CMAKE_GENERATOR}
          -D CMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER} -D REMAT_TORCH=OFF -D REMAT_TESTS=OFF
          -D CMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON)
set_tests_properties(planning_alone PROPERTIES LABELS install TIMEOUT 300)
