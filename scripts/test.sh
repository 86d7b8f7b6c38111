#!/usr/bin/env bash
# Installs what is missing, builds cpu-release and runs every test: unit, kernel, mpi, regression and style.
# Arguments go to ctest, e.g. scripts/test.sh -L unit. Exit code: 0 only if every test passed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

started=$SECONDS
scripts/setup.sh --python || exit 1
scripts/build.sh cpu-release || exit 1
built=$SECONDS

# Waiting threads sleep: tests share the cores, and spinning ones would steal them from their neighbours.
export OMP_WAIT_POLICY=passive
ctest --preset cpu-release --parallel "$(nproc)" "$@"
result=$?

echo
echo "setup and build $((built - started)) s, tests $((SECONDS - built)) s"
if ((result == 0)); then
  echo "all tests passed"
else
  echo "FAILED: see above; again only those: ctest --preset cpu-release --rerun-failed"
fi
exit "$result"
