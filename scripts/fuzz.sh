#!/usr/bin/env bash
# Fuzzes the readers of safetensors, config and embedding files and of messages: scripts/fuzz.sh [RUNS [TARGET...]]
# (default: 10000000 executions each of safetensors, config, embeddings, messages).
#
# Needs clang++ with libFuzzer (Debian: clang-14 libclang-rt-14-dev); SPOTLIGHT_FUZZ_CXX names another than clang++-14.
# Builds into build/fuzz with the address sanitizer; starts from tests/fuzz/corpus/TARGET, which is not changed. What is
# found stays in build/fuzz/found/TARGET: crashes, and new inputs to be minimised into the corpus with -merge=1. Ends
# with an error at the first crash, allocation above 64 MiB, memory above 1 GiB or input that takes over 5 s.
set -euo pipefail
cd "$(dirname "$0")/.."

runs=${1:-10000000}
if ! [[ $runs =~ ^[0-9]+$ ]]; then
  echo "fuzz.sh: '$runs' is not a number of executions: scripts/fuzz.sh [RUNS [TARGET...]]" >&2
  exit 2
fi
shift || true
targets=("$@")
((${#targets[@]})) || targets=(safetensors config embeddings messages)
cxx=${SPOTLIGHT_FUZZ_CXX:-clang++-14}
if ! command -v "$cxx" >/dev/null; then
  echo "fuzz.sh: $cxx is not installed; install clang-14 and libclang-rt-14-dev, or set SPOTLIGHT_FUZZ_CXX" >&2
  exit 2
fi

build=${SPOTLIGHT_FUZZ_BUILD:-build/fuzz}
mkdir -p "$build"
scripts/setup.sh
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$cxx" -DSPOTLIGHT_FUZZ=ON -DSPOTLIGHT_DEPS="${SPOTLIGHT_DEPS:-$PWD/.deps}" \
  -DCMAKE_CXX_FLAGS="-fsanitize=fuzzer-no-link,address" >"$build.log" || { cat "$build.log" >&2; exit 1; }
ninja -C "$build" "${targets[@]/#/fuzz_}"

for target in "${targets[@]}"; do
  found=$build/found/$target
  mkdir -p "$found"
  echo "fuzz.sh: $target, $runs executions"
  "$build/tests/fuzz/fuzz_$target" -runs="$runs" -max_len=4096 -malloc_limit_mb=64 -rss_limit_mb=1024 -timeout=5 \
    -print_final_stats=1 -dict=tests/fuzz/words.dict -artifact_prefix="$found/" "$found" "tests/fuzz/corpus/$target"
done
