"""The chaos suite: plays faults on real runs and checks that each ends with the bits of the undisturbed run.

    chaos.py [SCENARIO ...] [-n REPEATS] [-s SEED] [-k]

SCENARIO: names of the table below (`chaos.py list`), "short" (a minute's choice) or "all" (the default); further
"preemptions" and "figures" (or one of its parts), which have modules of their own. Repeat i of a scenario has seed
SEED + i. -k keeps the folders of all runs; those with violations are always kept, and named. Prints a line a run and a
table at the end. Exit code: 0 without a violation, 1 with one, 2 for a mistake in the arguments.
"""

import argparse
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "regression"))


def with_private_memory():
    """Starts this program again with a /dev/shm of its own, where that is allowed (root), so that names that are left
    there are this suite's. Elsewhere they are not checked."""
    if "SPOTLIGHT_CHAOS_PRIVATE" in os.environ or shutil.which("unshare") is None:
        return
    os.environ["SPOTLIGHT_CHAOS_PRIVATE"] = "0"
    mount = 'mount -t tmpfs none /dev/shm && export SPOTLIGHT_CHAOS_PRIVATE=1; exec "$0" -B "$@"'
    if os.geteuid() == 0 and os.system("unshare -m true 2>/dev/null") == 0:
        os.execvp("unshare", ["unshare", "-m", "sh", "-c", mount, sys.executable, *sys.argv])


def parse(arguments, names, parts):
    parser = argparse.ArgumentParser(prog="chaos.sh", description=__doc__.split("\n")[0])
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", default=["all"], help=" ".join(names))
    parser.add_argument("-n", type=int, metavar="REPEATS", help="runs of each scenario (default 20), or events")
    parser.add_argument("-s", type=int, metavar="SEED", default=1, help="of the first repeat (default 1)")
    parser.add_argument("-k", action="store_true", help="keep the folders of all runs")
    options = parser.parse_args(arguments)
    known = [*names, "all", "short", "list", "preemptions", "figures", *parts]
    unknown = [name for name in options.scenarios if name not in known]
    if unknown:
        parser.error(f"no scenario {' '.join(unknown)}; there are {' '.join(known)}")
    return options


def play(scenario, work, seed, keep):
    """A run of a scenario: (seconds, violations)."""
    from chaos_run import ChaosRun

    folder = work / f"{scenario.name}-{seed}"
    began = time.monotonic()
    run = ChaosRun(folder, seed, scenario.settings)
    try:
        scenario.act(run)
    except Exception:  # a harness that breaks must not hide what it has seen
        run.violations.append("harness: " + traceback.format_exc()[-600:])
        run.end_all()
    if not run.violations and not keep:
        run.remove()
    return time.monotonic() - began, run.violations


def play_all(chosen, work, options):
    """Prints the table; the number of violations."""
    rows = []
    for scenario in chosen:
        times, bad = [], 0
        for repeat in range(options.n or 20):
            seconds, violations = play(scenario, work, options.s + repeat, options.k)
            times.append(seconds)
            bad += bool(violations)
            print(f"{scenario.name} seed {options.s + repeat}: {seconds:.1f} s", *violations, sep="\n  ", flush=True)
        rows.append((scenario.name, scenario.what, len(times), bad, max(times)))
    print(f"\n{'scenario':<14}{'runs':>5}{'bad':>5}{'worst s':>9}  what")
    for name, what, runs, bad, worst in rows:
        print(f"{name:<14}{runs:>5}{bad:>5}{worst:>9.1f}  {what}")
    return sum(row[3] for row in rows)


def main(arguments):
    import figures
    import preemptions
    import scenarios

    # A shell's background job ignores it, and so would all runs, which are asked to stop by it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options = parse(arguments, list(scenarios.ALL), list(figures.PARTS))
    if "list" in options.scenarios:
        for scenario in scenarios.ALL.values():
            print(f"{scenario.name:<14}{scenario.what}")
        return 0
    work = pathlib.Path(tempfile.mkdtemp(prefix="spotlight-chaos-"))
    bad = 0
    chosen = []
    for name in options.scenarios:
        if name in figures.PARTS:
            bad += figures.play(work, options.n, options.s, [name])
        elif name in ("preemptions", "figures"):
            module = preemptions if name == "preemptions" else figures
            bad += module.play(work, options.n, options.s)
        elif name in ("all", "short"):
            chosen += [s for s in scenarios.ALL.values() if name == "all" or s.short]
        else:
            chosen.append(scenarios.ALL[name])
    if chosen:
        bad += play_all(chosen, work, options)
    if bad or options.k:
        print(f"kept: {work}")
    else:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if bad else 0


if __name__ == "__main__":
    with_private_memory()
    sys.exit(main(sys.argv[1:]))
