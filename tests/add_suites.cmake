# Read by ctest, with PROGRAM, FOLDER, LABEL, SLOW and LIST set: one entry, FOLDER.Suite, for each test suite of a
# googletest program; those in SLOW are labelled slow, and begin before others. A process for each test would spend more
# on loading LibTorch (0.4 s) than on testing. LIST keeps the names until the program is newer.
cmake_policy(VERSION 3.25)
if(NOT EXISTS "${PROGRAM}")
  add_test("${PROGRAM}_NOT_BUILT" "${PROGRAM}_NOT_BUILT")
  return()
endif()
if(NOT EXISTS "${LIST}" OR NOT "${LIST}" IS_NEWER_THAN "${PROGRAM}")
  execute_process(COMMAND "${PROGRAM}" --gtest_list_tests OUTPUT_VARIABLE output RESULT_VARIABLE result TIMEOUT 60)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${PROGRAM} --gtest_list_tests ended with ${result}")
  endif()
  # Suites begin a line; what stands behind `#` are types and values of parameters.
  string(REGEX MATCHALL "\n[^ \n]+\\." names "\n${output}")
  list(TRANSFORM names REPLACE "^\n(.*)\\.$" "\\1")
  list(REMOVE_DUPLICATES names)
  file(WRITE "${LIST}" "${names}")
endif()
file(READ "${LIST}" names)
foreach(name IN LISTS names)
  set(entry "${FOLDER}.${name}")
  add_test("${entry}" "${PROGRAM}" "--gtest_filter=${name}.*")
  # REMAT_VALIDATE: every step checks the invariants of its tape when it ends.
  set_tests_properties("${entry}" PROPERTIES TIMEOUT 600 ENVIRONMENT REMAT_VALIDATE=1)
  if("${name}" IN_LIST SLOW)  # ctest adds labels to those that a test has
    set_tests_properties("${entry}" PROPERTIES LABELS slow COST 50)
  else()
    set_tests_properties("${entry}" PROPERTIES LABELS "${LABEL}")
  endif()
endforeach()
