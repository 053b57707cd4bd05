# cmake -D README=... -D EXAMPLE=... -P in_readme.cmake: fails unless the README shows exactly the example.
file(READ ${README} readme)
file(READ ${EXAMPLE} example)
string(FIND "${readme}" "```cpp\n${example}```\n" place)
if(place EQUAL -1)
  message(FATAL_ERROR "${README} does not show ${EXAMPLE} as it is; copy the file into its ```cpp block")
endif()
