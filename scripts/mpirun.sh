#!/usr/bin/env bash
# The right mpirun with the settings under which fault tolerant MPI works, and the exit code of the program.
#
#   scripts/mpirun.sh -np 4 build/cpu-release/spotlight inputs/geneval.ini
#
# All arguments go to mpirun (Open MPI 5 with ULFM), which is $SPOTLIGHT_MPIRUN, or the one that scripts/setup.sh
# installed, or the first in PATH. src/comm/mpi_settings.cpp checks the settings below in the ranks.
#
# Signals: the first INT (Ctrl-C), TERM or USR1 asks the ranks, as USR1, to stop: a run after the iteration in work, with
# a checkpoint (exit code 75), a spot job after a denoising step. Another one, 2 s later or more, ends the job at once,
# with 75, too. mpirun by itself kills the job on INT and TERM.
#
# Exit code: that which the ranks agreed on. With fault tolerance on, mpirun returns 0 whatever the ranks return, so rank
# 0 writes the code into the file $SPOTLIGHT_EXIT_FILE: "1" at its start, "<agreed> final" at its end; if it dies, the
# survivors write it. A program that never writes it has failed: 1.
set -u

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
deps=${SPOTLIGHT_DEPS:-$root/.deps}
if [[ -n "${SPOTLIGHT_MPIRUN:-}" ]]; then
  mpirun=$SPOTLIGHT_MPIRUN
elif [[ -x "$deps/venv/bin/mpirun" ]]; then
  mpirun=$deps/venv/bin/mpirun
else
  mpirun=$(command -v mpirun || true)
fi
version=$("${mpirun:-false}" --version 2>/dev/null | sed -n '1s/^.*(Open MPI) \([0-9]*\)\..*$/\1/p')
if [[ "${version:-0}" -lt 5 ]]; then
  echo "mpirun.sh: '${mpirun:-mpirun}' is not Open MPI 5 or later; run scripts/setup.sh, or set SPOTLIGHT_MPIRUN" >&2
  exit 2
fi

# --with-ft marks only the first job as recoverable; a job spawned later would be torn down whole at its first loss, and
# mpirun would hang at the end.
export PRTE_MCA_state_base_recoverable=1
export PRTE_MCA_state_base_notify_errors=1
# Else MPI_Abort ends only its caller and the rest hangs.
export PRTE_MCA_state_base_error_non_zero_exit=0
# mpirun keeps its own variables from the ranks; -x lets them check these.
shown=(-x PRTE_MCA_state_base_recoverable -x PRTE_MCA_state_base_notify_errors -x PRTE_MCA_state_base_error_non_zero_exit)
# Else MPI_Finalize waits for the dead: it hung in half of the runs with a loss.
export OMPI_MCA_async_mpi_finalize=1
# The only point-to-point layer that is adapted to failures; without probing for others, start-up is 1 s shorter.
export OMPI_MCA_pml=ob1
export OMPI_MCA_btl=self,sm,tcp
export OMPI_MCA_osc=^ucx,rdma
# han crashes on repaired communicators.
export OMPI_MCA_coll=^han
# Lost peers are reported by us.
export OMPI_MCA_btl_base_warn_peer_error=0
# More ranks than cores are fine: coordinator and waiting ranks sleep.
export PRTE_MCA_rmaps_default_mapping_policy=${PRTE_MCA_rmaps_default_mapping_policy:-:OVERSUBSCRIBE}
# OpenMP would pin the threads of every rank to the same first cores.
export OMP_PROC_BIND=${OMP_PROC_BIND:-false}
if [[ $(id -u) -eq 0 ]]; then  # containers and CI
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi

# What starts the spot jobs of a trace ([spot] trace).
SPOTLIGHT_LAUNCHER=$root/scripts/mpirun.sh
export SPOTLIGHT_LAUNCHER
# mpirun gives the ranks a terminal of its own, wherever their output goes.
[[ -t 1 ]] || export SPOTLIGHT_NO_TERMINAL=1
own=$(mktemp -d) || exit 74
trap 'rm -rf "$own"' EXIT
SPOTLIGHT_EXIT_FILE=$own/exit
: >"$SPOTLIGHT_EXIT_FILE"
export SPOTLIGHT_EXIT_FILE
# mpirun names its folder by its process id, and does not start ("listener thread failed") if one that was killed has
# left a folder of that name.
export PRTE_MCA_prte_local_tmpdir_base=$own

first_stop=
stop() {
  if [[ -z "$first_stop" ]]; then
    first_stop=$SECONDS
    echo "mpirun.sh: asked to stop: a run ends after the iteration in work, with a checkpoint, a spot job after a" \
      "denoising step; asked again, at once" >&2
  elif ((SECONDS - first_stop >= 2)); then  # one Ctrl-C or timeout(1) may arrive twice
    kill -TERM "$pid" 2>/dev/null
  fi
}
trap stop INT TERM USR1

# A process group of its own (set -m), so that the terminal's Ctrl-C reaches this script only. USR1 is ignored until
# mpirun and the ranks have set their handlers; to be sure it arrives, it is repeated until the end.
set -m
(trap '' USR1; exec "$mpirun" --with-ft ulfm --bind-to none "${shown[@]}" "$@") </dev/null &
pid=$!
set +m
# A rank that is stopped, or hangs in a machine that is going away, must not keep the others' results: once the code is
# final, the job has 5 s to end.
(
  exec {nothing}<> <(:)
  rest() { read -rt "$1" -u "$nothing" || :; }  # sleep without a process that would outlive this one
  while kill -0 "$pid" 2>/dev/null && ! grep -q final "$SPOTLIGHT_EXIT_FILE" 2>/dev/null; do rest 1; done
  rest 5
  kill -TERM "$pid" 2>/dev/null && rest 10 && kill -KILL "$pid" 2>/dev/null
) >/dev/null 2>&1 &
watcher=$!
while kill -0 "$pid" 2>/dev/null; do
  if [[ -n "$first_stop" ]]; then
    kill -USR1 "$pid" 2>/dev/null
    sleep 1 & wait $! 2>/dev/null
  else
    wait "$pid"  # comes back at a trapped signal, too
  fi
done
wait "$pid"
code=$?
# Memory that the ranks of a run shared, if all of them were killed: nobody has it open any more.
for memory in /dev/shm/spotlight-*; do
  [[ -O "$memory" ]] || continue
  ls -l /proc/[0-9]*/fd /proc/[0-9]*/map_files 2>/dev/null | grep -qF "${memory%%-*}-$(cut -d- -f2 <<<"$memory")" || rm -f "$memory"
done
kill "$watcher" 2>/dev/null
read -r agreed final <"$SPOTLIGHT_EXIT_FILE"
# mpirun's own code is 1 where it was told above to end the job.
if [[ -n "$first_stop" && "$agreed" == 1 && -z "$final" ]]; then
  code=75  # the ranks were killed, as they were asked to end at once
elif [[ "$agreed" =~ ^[0-9]+$ && ("$agreed" -ne 0 || "$final" == final) ]]; then
  code=$agreed
elif [[ -z "$agreed" && "$code" -eq 0 ]]; then
  # The ranks died while they were starting, which mpirun takes for a success.
  code=1
  [[ -n "$first_stop" ]] && code=75
fi
exit "$code"
