#!/bin/bash
# durability.sh LABDIR N [SEED]: kill -9 at N drawn moments on a lab, resume each time, audit every byte.
# Brings the lab up if it is down. Uses the Python that has twinrail installed (PYTHON=..., default: .venv of the checkout).
set -eu
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
LAB=${1:?LABDIR} N=${2:?N}
PYTHON=${PYTHON:-$HERE/../../.venv/bin/python}
LAB_KEEP="${LAB_KEEP:-} $("$PYTHON" -c 'import sys; print(sys.base_prefix)')" bash "$HERE/lab.sh" up "$LAB"
"$PYTHON" "$HERE/configure.py" "$LAB" --log-flood 1500 >/dev/null
exec "$PYTHON" "$HERE/durability.py" "$LAB" "$N" ${3:+"$3"}
