#!/usr/bin/env bash
# Installs what a build needs and is missing: Debian packages, then Open MPI (ULFM), Kokkos and cuDNN's C++ headers
# from PyPI into one folder, SPOTLIGHT_DEPS (default .deps), which may be cached between machines of one kind.
#
#   scripts/setup.sh            what the build needs
#   scripts/setup.sh --python   also .deps/python: PyTorch, diffusers, h5py … for tests/python and scripts/bench
#
# Every PyPI file is pinned by version and hash (scripts/requirements/*.txt). A step is skipped when its stamp holds
# the hash of its lock, so a second run takes a fraction of a second and asks no server. Root or sudo is needed only
# when a Debian package is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

want_python=no
for argument in "$@"; do
  case $argument in
    --python) want_python=yes ;;
    *)
      echo "setup.sh: unknown argument '$argument'; allowed: --python" >&2
      exit 2
      ;;
  esac
done

deps=${SPOTLIGHT_DEPS:-$PWD/.deps}
locks=$PWD/scripts/requirements
mkdir -p "$deps"
exec 9>"$deps/.lock"
flock 9 # two setups at once would install into the same folders

say() { echo "setup: $*"; }

# is_current STEP KEY: true if STEP was finished with this KEY.
is_current() { [[ -f $deps/.$1.stamp && $(<"$deps/.$1.stamp") == "$2" ]]; }
finish() { echo "$2" >"$deps/.$1.stamp"; }
key_of() { sha256sum "$@" | cut -d' ' -f1 | tr -d '\n'; }

# --- Debian packages -------------------------------------------------------------------------------------------------
packages=(g++ cmake ninja-build pkg-config git ca-certificates python3 python3-venv libhdf5-dev
  libdnnl-dev libcli11-dev libfmt-dev libspdlog-dev nlohmann-json3-dev libgtest-dev libgmock-dev
  libzmq3-dev cppzmq-dev libpng-dev zlib1g-dev)
# Without these builds are slower, some tests are skipped, and an OCR judge has no engine.
wanted=(ccache hdf5-tools clang-format tesseract-ocr)
if command -v dpkg-query >/dev/null; then
  installed=$(dpkg-query -W -f='${db:Status-Abbrev}${binary:Package}\n' "${packages[@]}" "${wanted[@]}" 2>/dev/null || true)
  missing=() left_out=()
  for package in "${packages[@]}"; do
    grep -qE "^.i ${package//+/\\+}(:[a-z0-9]+)?$" <<<"$installed" || missing+=("$package")
  done
  for package in "${wanted[@]}"; do
    grep -qE "^.i $package(:[a-z0-9]+)?$" <<<"$installed" || left_out+=("$package")
  done
  as_root=()
  if ((EUID != 0)); then as_root=(sudo); fi
  if ((EUID != 0)) && ! command -v sudo >/dev/null; then
    if ((${#missing[@]})); then
      echo "setup.sh: needs root or sudo for: apt-get install ${missing[*]}; with libraries of your own, build by" \
        "cmake --preset cpu-release (README, Install)" >&2
      exit 1
    fi
    if ((${#left_out[@]})); then say "left out, for want of root or sudo: ${left_out[*]}"; fi
  elif ((${#missing[@]} + ${#left_out[@]})); then
    say "Debian packages missing: ${missing[*]} ${left_out[*]}"
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
      "${missing[@]}" "${left_out[@]}"
  fi
else
  say "no dpkg here: Debian packages not checked; CMake names what is missing"
fi

# make_venv FOLDER: a virtual environment there, unless a working one is.
make_venv() {
  "$1/bin/python" -c '' 2>/dev/null || python3 -m venv --clear "$1"
}

# --- Open MPI and headers from PyPI ----------------------------------------------------------------------------------
key=$(key_of "$locks/build.txt")
if ! is_current venv "$key" || [[ ! -x $deps/venv/bin/mpirun ]]; then
  say "installing Open MPI 5 (ULFM) and cuDNN front-end headers into $deps/venv"
  make_venv "$deps/venv"
  # --no-deps: the front end's dependencies are half a gigabyte of Python that nobody here imports
  "$deps/venv/bin/pip" install -q --no-deps --require-hashes -r "$locks/build.txt"
  finish venv "$key"
fi

# --- Kokkos, from the source inside a source distribution: Debian 12 has only a serial 3.4 ---------------------------
kokkos_options=(-DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_CXX_STANDARD=20
  -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DKokkos_ENABLE_SERIAL=ON -DKokkos_ENABLE_OPENMP=ON)
key="$(key_of "$locks/kokkos.txt") ${kokkos_options[*]}"
if ! is_current kokkos "$key" || [[ ! -f $deps/kokkos/lib/cmake/Kokkos/KokkosConfig.cmake ]]; then
  say "building Kokkos 4.7 into $deps/kokkos (about a minute)"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  # pip reads an sdist's metadata through its build back end: the locked one from build.txt, not whatever is newest
  "$deps/venv/bin/pip" download -q --no-deps --no-build-isolation --no-binary pygenten --require-hashes \
    -r "$locks/kokkos.txt" -d "$work"
  tar -xzf "$work"/pygenten-*.tar.gz -C "$work" --strip-components=3 --wildcards '*/tpls/kokkos/*'
  log=$deps/kokkos-build.log
  if ! { cmake -S "$work" -B "$work/build" -G Ninja -DCMAKE_INSTALL_PREFIX="$deps/kokkos" "${kokkos_options[@]}" &&
    cmake --build "$work/build" --target install; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "setup.sh: Kokkos did not build; whole output in $log" >&2
    exit 1
  fi
  finish kokkos "$key"
fi

# --- Python for tests and benchmarks ---------------------------------------------------------------------------------
if [[ $want_python == yes ]]; then
  key=$(key_of "$locks/python.txt")
  if ! is_current python "$key" || [[ ! -x $deps/python/bin/python ]]; then
    say "installing PyTorch, diffusers, h5py … into $deps/python (about 2.5 GB to fetch)"
    make_venv "$deps/python"
    "$deps/python/bin/pip" install -q --require-hashes -r "$locks/python.txt"
    finish python "$key"
  fi
fi
say "everything is in place ($deps)"
