#!/usr/bin/env bash
# Speed beside PyTorch, diffusers and safetensors on this machine: scripts/bench.sh [NAME...] [-t THREADS[,THREADS...]]
#
#   iteration   one RL iteration of inputs/geneval.ini        beside scripts/bench/pytorch_iteration.py
#   block       one block of Qwen-Image's real size           beside scripts/bench/diffusers_block.py
#   vae         decoding one image of 256 px                  beside scripts/bench/diffusers_vae.py
#   load        reading two real blocks' weights, bf16        beside scripts/bench/safetensors_load.py
#   sp          sequence parallelism at degrees 1, 2, 4       efficiency table; see tests/bench/bench_sp.cpp
#   queue       the coordinator's queue of requests alone     pulls a second on one core, of 50,000 that are wanted
#   planner     planning and selecting seeds                  ms an iteration, of 1 ms that is allowed
#   pulls       the coordinator's rate over the network        beside a bare ZeroMQ echo; tests/bench/bench_pulls.cpp
#   store       commits of 64 workers to the tensor store     beside write() of as much; tests/bench/bench_store.cpp
#
# By default all, with 1 thread and with all cores. Ours and theirs run by turns with OMP_NUM_THREADS set to the same
# number. Prints a table per benchmark and number of threads; below 1 we are faster. `load`, `sp`, `queue`, `planner`,
# `pulls` and `store` use one thread a process (`store` a second one to write, `pulls` ZeroMQ's own); `load` and `store`
# write 1.4 GB below TMPDIR. Run it on a machine that does nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

all=(iteration block vae load sp queue planner pulls store)
names=()
threads=()
while (($#)); do
  case $1 in
    -t)
      IFS=, read -ra threads <<<"${2:-}"
      shift $(($# > 1 ? 2 : 1))
      ;;
    iteration | block | vae | load | sp | queue | planner | pulls | store)
      names+=("$1")
      shift
      ;;
    *)
      echo "bench.sh: unknown argument '$1'; allowed: ${all[*]} -t THREADS[,THREADS...]" >&2
      exit 2
      ;;
  esac
done
for n in "${threads[@]}"; do
  if [[ ! $n =~ ^[1-9][0-9]*$ ]]; then
    echo "bench.sh: -t $n: a number of threads is meant" >&2
    exit 2
  fi
done
if ((${#names[@]} == 0)); then names=("${all[@]}"); fi
if ((${#threads[@]} == 0)); then mapfile -t threads < <(printf '%s\n' 1 "$(nproc)" | sort -nu); fi

scripts/setup.sh --python
scripts/build.sh cpu-release "${names[@]/#/bench_}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python() { "${SPOTLIGHT_DEPS:-$PWD/.deps}/python/bin/python" -B "$@"; }
ours() { "build/cpu-release/tests/bench/bench_$1" "${@:2}" >"$work/ours"; }
theirs() { python "scripts/bench/$1.py" "${@:2}" --threads "$OMP_NUM_THREADS" >"$work/theirs"; }
compare() { python scripts/bench/compare.py "$work/ours" "$work/theirs" "$1"; }

bench() {
  case $1 in
    iteration)
      ours iteration
      theirs pytorch_iteration inputs/models/tiny-shapes
      compare PyTorch
      ;;
    block)
      ours block
      theirs diffusers_block --repeats 5
      compare diffusers
      ;;
    vae)
      ours vae 3 256
      theirs diffusers_vae --pixels 256
      compare diffusers
      ;;
    load)
      local model=$work/model
      [[ -d $model ]] || python scripts/make_random_checkpoint.py "$model" --layers 2
      for to in f32 bf16; do
        ours load "$model/transformer" $to 5
        theirs safetensors_load "$model/transformer" --to $to --repeats 5
        compare safetensors
        export THP_MEM_ALLOC_ENABLE=1
        theirs safetensors_load "$model/transformer" --to $to --repeats 5
        compare "safetensors with THP_MEM_ALLOC_ENABLE=1"
        unset THP_MEM_ALLOC_ENABLE
      done
      ;;
    sp)
      scripts/mpirun.sh -np 4 build/cpu-release/tests/bench/bench_sp >"$work/ours"
      python scripts/bench/sp_table.py "$work/ours"
      ;;
    queue)
      build/cpu-release/tests/bench/bench_queue
      ;;
    planner)
      build/cpu-release/tests/bench/bench_planner
      ;;
    pulls)
      build/cpu-release/tests/bench/bench_pulls
      ;;
    store)
      build/cpu-release/tests/bench/bench_store "$work/store"
      ;;
  esac
}

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "$(nproc) cores, $processor, load $(cut -d' ' -f1 /proc/loadavg)"
for name in "${names[@]}"; do
  counts=("${threads[@]}")
  if [[ $name == load || $name == sp || $name == queue || $name == planner || $name == pulls || $name == store ]]; then counts=(1); fi
  for n in "${counts[@]}"; do
    export OMP_NUM_THREADS=$n
    bench "$name"
  done
done
