#!/usr/bin/env bash
# Installs what is missing, builds, and runs: scripts/run.sh INPUT [section/key=value ... | options].
# SPOTLIGHT_RANKS sets the number of ranks (default 4: coordinator, trainer and two spot ranks). The exit code is the
# program's: 0 finished, 1 our bug, 2 mistake in the input, 74 file trouble, 75 stopped early with a good checkpoint.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

if (($# == 0)); then
  echo "usage: scripts/run.sh INPUT [section/key=value ... | options], e.g. scripts/run.sh inputs/geneval.ini" >&2
  exit 2
fi
deps=${SPOTLIGHT_DEPS:-$here/../.deps}
"$here/setup.sh"
"$here/build.sh" cpu-release spotlight
if [[ -z ${SPOTLIGHT_MPIRUN:-} && -x $deps/venv/bin/mpirun ]]; then export SPOTLIGHT_MPIRUN=$deps/venv/bin/mpirun; fi
exec "$here/mpirun.sh" -np "${SPOTLIGHT_RANKS:-4}" "$here/../build/cpu-release/spotlight" "$@"
