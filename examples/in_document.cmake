# cmake -D DOCUMENT=... -D EXAMPLE=... -P in_document.cmake: fails unless the document shows exactly the example.
file(READ ${DOCUMENT} document)
file(READ ${EXAMPLE} example)
string(FIND "${document}" "```cpp\n${example}```\n" place)
if(place EQUAL -1)
  message(FATAL_ERROR "${DOCUMENT} does not show ${EXAMPLE} as it is; copy the file into its ```cpp block")
endif()
