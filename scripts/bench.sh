#!/usr/bin/env bash
# Speed beside PyTorch and diffusers on this machine, in one run: scripts/bench.sh [THREADS...] (default: 1 and all).
#
#   iteration   one RL iteration of inputs/geneval.ini        beside scripts/bench/pytorch_iteration.py
#   block       one block of Qwen-Image's real size           beside scripts/bench/diffusers_block.py
#
# Ours and theirs run by turns with OMP_NUM_THREADS set to the same number. Prints a table per benchmark and number of
# threads; below 1 we are faster. Run it on a machine that does nothing else.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh --python
scripts/build.sh cpu-release bench_iteration bench_block
python() { "${SPOTLIGHT_DEPS:-$PWD/.deps}/python/bin/python" -B "$@"; }
bench=scripts/bench
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
threads=("$@")
if ((${#threads[@]} == 0)); then mapfile -t threads < <(printf '%s\n' 1 "$(nproc)" | sort -nu); fi

processor=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
echo "$(nproc) cores, $processor, load $(cut -d' ' -f1 /proc/loadavg)"
for n in "${threads[@]}"; do
  export OMP_NUM_THREADS=$n
  build/cpu-release/tests/bench/bench_iteration >"$work/ours"
  python $bench/pytorch_iteration.py inputs/models/tiny-shapes --threads "$n" >"$work/theirs"
  python $bench/compare.py "$work/ours" "$work/theirs" PyTorch
  build/cpu-release/tests/bench/bench_block >"$work/ours"
  python $bench/diffusers_block.py --threads "$n" --repeats 5 >"$work/theirs"
  python $bench/compare.py "$work/ours" "$work/theirs" diffusers
done
