# run(COMMAND...): must succeed. fails_with(MESSAGE COMMAND...): must fail, and say so.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  message("${output}")
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed (${result}): ${command}")
  endif()
endfunction()

function(fails_with message)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(REGEX REPLACE "[ \n]+" " " flat "${output}")  # CMake wraps messages
  string(FIND "${flat}" "${message}" found)
  if(result EQUAL 0 OR found EQUAL -1)
    message(FATAL_ERROR "expected a failure with the message '${message}', got (${result}):\n${output}")
  endif()
endfunction()
