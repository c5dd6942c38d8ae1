# cmake -DSOURCE=FOLDER -DOUTPUT=FILE -P commit.cmake: which commit is built, as a header that is only touched when that
# changes. A results file tells with it what it was measured with.
execute_process(COMMAND git -C ${SOURCE} rev-parse --short=10 HEAD
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "commit unknown")
else()
  set(commit "commit ${commit}")
  # Only what is compiled counts: a changed document is no other program.
  execute_process(COMMAND git -C ${SOURCE} status --porcelain -- src include cmake CMakeLists.txt
    OUTPUT_VARIABLE changes ERROR_QUIET)
  if(NOT changes STREQUAL "")
    string(APPEND commit ", changed")
  endif()
endif()
set(text "#pragma once\n\nnamespace co2::study {\ninline constexpr const char* kCommit = \"${commit}\";\n}\n")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${OUTPUT} "${text}")
endif()
