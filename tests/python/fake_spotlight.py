"""Stands in for mpirun and for the program under it in test_claims.py: writes the run.h5 of a run in no time.

As mpirun: `--version`, or options and then the program (this file again) with its arguments. Environment:
FAKE_STARTED: file that gets a line for each run, its process id and its arguments; FAKE_HANGS: a run goes on until
USR1, and then says that it was stopped.
"""

import os
import pathlib
import signal
import sys

EVERY = 10  # iterations between two evaluations


def say(code):
    pathlib.Path(os.environ["SPOTLIGHT_EXIT_FILE"]).write_text(f"{code} final\n", encoding="utf-8")
    sys.exit(code)


def write(folder, settings):
    import h5py  # not needed by a run that is stopped, and slow to import
    import numpy as np

    iterations, rate = int(settings["run/iterations"]), float(settings["train/lr"])
    steps = np.arange(iterations + 1)
    row = np.where(steps < iterations, 1.0, np.nan)
    score = np.where(steps % EVERY == 0, 0.3 + 0.4 * steps / iterations - abs(rate - 3e-4) * 100, np.nan)
    history = {"step": steps, "eval_strict": score, "time_step_s": row, "time_train_s": 0.6 * row, "policy_pairs": 40 * row,
               "time_explore_tail_s": 0.01 * row, "cost_price": 0.1 * steps, "cost_spot_rank_h": steps + 1.0,
               "cost_spot_idle_h": 0.5 * (steps + 1)}  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / "run.h5", "w") as run:
        run.attrs["git_sha"] = "abc"
        for name, values in history.items():
            run.create_dataset(f"history/{name}", data=values)


def main(arguments):
    if arguments == ["--version"]:
        print("mpirun (Open MPI) 5.0.0")
        return
    arguments = arguments[arguments.index(os.environ["SPOTLIGHT_BINARY"]) + 1 :]
    if "FAKE_HANGS" in os.environ:
        signal.signal(signal.SIGUSR1, lambda *_: say(75))
    with open(os.environ["FAKE_STARTED"], "a", encoding="utf-8") as file:
        print(os.getpid(), *arguments, file=file)
    while "FAKE_HANGS" in os.environ:
        signal.pause()
    write(pathlib.Path(arguments[arguments.index("-d") + 1]), dict(a.split("=", 1) for a in arguments if "=" in a))
    say(0)


main(sys.argv[1:])
