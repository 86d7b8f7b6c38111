"""Many preemptions in few long runs: N losses, notices and joins, then the bits of the undisturbed run.

Runs of 8 explorers in groups of 2 and of 4, by turns, with losses, notices and joins drawn at random (recorded traces
are the scenarios S5). A run has EVENTS of them at most; then it is asked to stop and goes on undisturbed for two
iterations, so that it has results.
"""

import signal
import time

from chaos_run import SETTINGS, ChaosRun
from growth import Growth

EVENTS = 250
RANKS = 10


def play(work, count, seed):
    """Prints what happened; the number of runs with violations."""
    left, number, bad = count or 1000, 0, 0
    while left > 0:
        run = ChaosRun(work / f"preemptions-{number}", seed + number, dict(SETTINGS))
        run.settings.update({"run/iterations": 100000, "ranks/explorer_sp": 2 if number % 2 == 0 else 4})
        run.settings.update({"checkpoint/every": 50, "spot/cool_down": 0})
        began = time.monotonic()
        events, lines = preempt(run, min(left, EVENTS))
        run.end_at_border(RANKS)
        run.finish()
        print(
            f"run {number}, groups of {run.settings['ranks/explorer_sp']}: {events} preemptions and joins in "
            f"{run.rows()} iterations, {time.monotonic() - began:.0f} s; {len(run.violations)} violations",
            *lines, *run.violations, sep="\n  ", flush=True,
        )  # fmt: skip
        bad += bool(run.violations)
        if events == 0:
            break
        left -= events
        number += 1
        if not run.violations:
            run.remove()
    print(f"{(count or 1000) - max(0, left)} preemptions and joins, {number} runs, {bad} with violations")
    return bad


def preempt(run, count):
    """(events played, lines of growth)"""
    run.start(RANKS)
    if not run.wait_rows(1):
        return 0, []
    watch, events, last_look = Growth(run), 0, 0.0
    while events < count and run.running():
        explorers = run.explorers()
        if len(explorers) < run.random.randint(3, 8):
            run.join(run.random.choice((1, 1, 2, 4)))
            run.pause(0.3, 1.2)  # until it is there
        else:
            victims = run.random.sample(explorers, min(len(explorers), run.random.choice((1, 1, 1, 2, 4))))
            number = run.random.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
            run.kill(victims[: count - events], number)
            events += len(victims)
            run.pause(0, 0.4)
        run.collect_jobs()
        if time.monotonic() - last_look > 2:
            watch.look()
            last_look = time.monotonic()
    return events, watch.check()
