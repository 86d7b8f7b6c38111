#!/usr/bin/env bash
# Checks the CUDA back end on this machine's NVIDIA GPU, in at most 8 minutes, and measures it:
#
#   scripts/gpu_check.sh                        installs what is missing, builds, checks
#   scripts/gpu_check.sh -b FOLDER              with a build as it is, or an unpacked archive (below)
#   scripts/gpu_check.sh --cpu                  a rehearsal: every stage small, the CPU in place of the GPU
#   scripts/gpu_check.sh --stages kernels,runs  only these; --help lists them and all options
#   scripts/gpu_check.sh --python PYTHON        where PyTorch and diffusers are, to compare with (default: the Python of
#                                               scripts/setup.sh --python if it is there, else python3)
#
# Stages: the kernels' tests on the device; golden vectors in fp32 and bfloat16; runs of a tiny model, with several
# processes on the GPU, killed and resumed; each operation's share of the measured bandwidth or product rate; passes of
# Qwen-Image's transformer at 512 and 1280 px beside diffusers. Each stage has its own time limit and stops no other
# one. Results: OUTPUT/gpu_check.md to read, OUTPUT/gpu_check.json (-o OUTPUT, default run/gpu_check-TIME). Ctrl-C leaves
# what is known until then, and no process.
#
# A machine without network or compilers needs, besides this checkout: Python 3.9, a driver, and CUDA's libraries
# (libcudart, libcublasLt and libnvrtc of the toolkit's major version; libcudnn 9 with its engines; libnccl 2).
#
#   scripts/gpu_check.sh --pack gpu_check.tar.gz      where it can be built: programs and other libraries
#   mkdir gpu && tar xf gpu_check.tar.gz -C gpu && scripts/gpu_check.sh -b gpu      on the machine with the GPU
#
# A build is for the processor that it was made on: for another one, configure with -DSPOTLIGHT_ARCH=x86-64-v3 and name
# its folder in SPOTLIGHT_GPU_CHECK_BUILD for --pack.
#
# Exit code: 0 all passed (speed that misses a goal is told, and fails nothing), 1 a stage failed or it was stopped, 2
# nothing to run on: no GPU, or a build without CUDA, with the reason.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=(spotlight kernels_test model_test bench_operations bench_passes)
deps=${SPOTLIGHT_DEPS:-$PWD/.deps}
build=${SPOTLIGHT_GPU_CHECK_BUILD:-}
archive=
cpu=
words=()
refuse() {
  echo "gpu_check.sh: $1" >&2
  exit 2
}
while (($#)); do
  case $1 in
    -b | --build) [[ -n ${2:-} ]] || refuse "$1 needs a build folder: $1 FOLDER"
      build=$2 && shift ;;
    --build=*) build=${1#*=} ;;
    --pack) [[ -n ${2:-} ]] || refuse "--pack needs a file: --pack ARCHIVE.tar.gz"
      archive=$2 && shift ;;
    --cpu) cpu=yes words+=("$1") ;;
    -h | --help) exec python3 -B tests/gpu/gpu_check.py --help ;;
    *) words+=("$1") ;;
  esac
  shift
done

if [[ -z $cpu && -z $archive ]] && ! python3 -c 'import ctypes; ctypes.CDLL("libcuda.so.1")' 2>/dev/null; then
  refuse "there is no NVIDIA driver (libcuda.so.1) on this machine; --cpu rehearses without a GPU"
fi
if [[ -z $build ]]; then
  scripts/setup.sh >&2
  if [[ -z $cpu ]]; then
    listed=$(scripts/build.sh cpu-release help)
    echo "${listed%%All primary targets*}" >&2 # what was found, where nothing had been configured
    if ! grep -q '^spotlight_cuda:' <<<"$listed"; then
      refuse "CUDA is missing for a build: $(cmake --preset cpu-release 2>&1 | sed -n "s/^.*CUDA  *left out: //p")"
    fi
    targets+=(spotlight_cuda spotlight_cuda_meter)
  fi
  scripts/build.sh cpu-release "${targets[@]}" >&2
  build=build/cpu-release
fi
if [[ -z ${SPOTLIGHT_MPIRUN:-} && -x $deps/venv/bin/mpirun ]]; then export SPOTLIGHT_MPIRUN=$deps/venv/bin/mpirun; fi
if [[ -n $archive ]]; then
  exec python3 -B tests/gpu/pack.py "$build" "$archive" "$([[ -x $deps/venv/bin/mpirun ]] && echo "$deps/venv")"
fi
if [[ -x $deps/python/bin/python ]]; then words=(--python "$deps/python/bin/python" "${words[@]}"); fi
exec python3 -B tests/gpu/gpu_check.py --build "$build" "${words[@]}"
