#!/usr/bin/env bash
# Configures and builds: scripts/build.sh [PRESET [TARGET...]]. Presets: cpu-release (default), cpu-debug, cpu-asan.
# Results lie under build/PRESET. Nothing here is needed by CMake: `cmake --preset cpu-release` works alone where MPI,
# Kokkos and HDF5 are already on the machine.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-cpu-release}
shift || true
options=(-DSPOTLIGHT_DEPS="${SPOTLIGHT_DEPS:-$PWD/.deps}")
if command -v ccache >/dev/null; then options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi

fresh=no
[[ -f build/$preset/build.ninja ]] || fresh=yes
if ! output=$(cmake --preset "$preset" "${options[@]}" 2>&1); then
  echo "$output" >&2
  exit 1
fi
if [[ $fresh == yes ]]; then echo "$output"; fi # what was found; once is enough
targets=()
if (($#)); then targets=(--target "$@"); fi
cmake --build --preset "$preset" --parallel "$(nproc)" "${targets[@]}"
