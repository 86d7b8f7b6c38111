#!/usr/bin/env bash
# What exploration beside training is worth: runs spotlight and each baseline of inputs/baselines to a held-out score.
#
#   scripts/claims.sh                         all arms: each tunes its learning rate, then 8 run seeds (some 2 hours)
#   scripts/claims.sh -o run/claims --arms spotlight,critical --seeds 4 --iterations 60 --target 0.5
#   scripts/claims.sh --table -o run/claims   only the table and the plot, of the runs that are there
#
# Prints and writes OUT/claims.md (iterations, time and cost to the score, and what exploration costs the trainers, with
# 95 % intervals), OUT/claims.csv (one row a run) and OUT/claims.png. A second call goes on where the first was stopped:
# finished runs are kept, and what was begun is resumed. --help lists all options; ranks get one core each, so leave as
# many free. SPOTLIGHT_BINARY names a program that is to be used as it is. Relative paths start in the repository's
# folder.
set -euo pipefail
cd "$(dirname "$0")/.."

if [[ " $* " != *" --help "* && " $* " != *" -h "* ]]; then
  scripts/setup.sh --python
  if [[ -z ${SPOTLIGHT_BINARY:-} ]]; then scripts/build.sh cpu-release spotlight >&2; fi
fi
export SPOTLIGHT_BINARY=${SPOTLIGHT_BINARY:-$PWD/build/cpu-release/spotlight}
deps=${SPOTLIGHT_DEPS:-.deps}
if [[ -z ${SPOTLIGHT_MPIRUN:-} && -x $deps/venv/bin/mpirun ]]; then export SPOTLIGHT_MPIRUN=$deps/venv/bin/mpirun; fi
python=$deps/python/bin/python
exec "$([[ -x $python ]] && echo "$python" || echo python3)" -B scripts/claims/claims.py "$@"
