# Sourced by setup and build. Which Python's torch do we build against? Sets
#   co2_python   the interpreter
#   co2_own      1 if it is the project's own environment, .venv, which setup may fill
# A Python that the user names (CO2_PYTHON) must be good enough; one that is merely activated may be passed over.

co2_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
co2_python=$co2_root/.venv/bin/python
co2_own=1

say() { echo "co2: $*"; }
fail() { echo "co2: $*" >&2; exit 1; }

choose_python() {
  local problem
  if [[ -n ${CO2_PYTHON:-} && $CO2_PYTHON != "$co2_python" ]]; then
    [[ -f $CO2_PYTHON && -x $CO2_PYTHON ]] ||
      fail "CO2_PYTHON names $CO2_PYTHON, which is not a program. Give the path of a python."
    # CMake remembers it: the same Python must have the same name from every folder. Links stay: an environment's
    # python is one.
    CO2_PYTHON=$(realpath -s -- "$CO2_PYTHON")
    problem=$("$CO2_PYTHON" "$co2_root/scripts/check_python.py" torch 2>&1) ||
      fail "CO2_PYTHON names $CO2_PYTHON, which can't be used: $problem." \
        "Name another one, or unset CO2_PYTHON to let scripts/setup install torch into .venv."
    co2_python=$CO2_PYTHON
    co2_own=0
    say "using the torch of $co2_python (CO2_PYTHON)"
  elif [[ -n ${VIRTUAL_ENV:-} && ! $VIRTUAL_ENV -ef $co2_root/.venv && -x $VIRTUAL_ENV/bin/python ]]; then
    if problem=$("$VIRTUAL_ENV/bin/python" "$co2_root/scripts/check_python.py" torch 2>&1); then
      co2_python=$VIRTUAL_ENV/bin/python
      co2_own=0
      say "using the torch of $co2_python (the activated environment)"
    else
      say "not using the activated environment $VIRTUAL_ENV: $problem"
    fi
  fi
}
