# How scripts/setup chooses a Python. --no-packages: a test changes nothing on the system.
file(REMOVE_RECURSE ${WORK})
execute_process(COMMAND ${PYTHON} -m venv --without-pip ${WORK}/bare COMMAND_ERROR_IS_FATAL ANY)
function(expect want_success message)
  execute_process(COMMAND ${CMAKE_COMMAND} -E env --unset=CO2_PYTHON --unset=VIRTUAL_ENV ${ARGN}
    ${SOURCE}/scripts/setup --no-packages RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  string(FIND "${output}" "${message}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "${ARGN}: expected '${message}', got (${result}):\n${output}")
  endif()
  if((result EQUAL 0) AND NOT want_success OR NOT (result EQUAL 0) AND want_success)
    message(FATAL_ERROR "${ARGN}: ended with ${result}:\n${output}")
  endif()
endfunction()
# The torch of this build, seen from an environment that isn't the project's own.
execute_process(COMMAND ${PYTHON} -c "import importlib.util as u; print(u.find_spec('torch').origin)"
  OUTPUT_VARIABLE torch OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
get_filename_component(packages ${torch}/../.. ABSOLUTE)
set(with_torch PYTHONPATH=${packages})

expect(FALSE "which can't be used: it has no package torch" CO2_PYTHON=${WORK}/bare/bin/python)
expect(FALSE "which is not a program" CO2_PYTHON=${WORK}/nowhere)
expect(TRUE "using the torch of ${WORK}/bare/bin/python (CO2_PYTHON)" CO2_PYTHON=${WORK}/bare/bin/python ${with_torch})
expect(TRUE "(the activated environment)" VIRTUAL_ENV=${WORK}/bare ${with_torch})
file(REMOVE_RECURSE ${WORK})
