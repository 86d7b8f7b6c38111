"""Runs every arm (inputs/baselines/ARM.ini) with its own learning rate and several run seeds, then compares them.

    claims.py [-o OUT] [--arms A,B] [--seeds N] [--iterations N] [--rates R,S] [--tune-seeds N] [--target SCORE]
              [--ranks N] [--trace FILE] [--table] [section/key=value ...]

The learning rate of an arm is the one of `--rates` with the best mean held-out score over the second half of
`--tune-seeds` short runs, whose run seeds (1000, 1001, ...) are not those that are compared. Exit code: 0; 1 with one
line if a run fails; 2 for a mistake in the arguments.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

import report
from run_results import read_run

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ARMS = ("spotlight", "unplanned", "critical", "rollouts_only", "reserved_rollouts", "reserved")
FIRST_TUNE_SEED = 1000


def parse(arguments):
    parser = argparse.ArgumentParser(prog="claims.sh", description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--out", type=pathlib.Path, default=pathlib.Path("run/claims"), help="default run/claims")
    parser.add_argument("--arms", default=",".join(ARMS), help="of " + ", ".join(ARMS))
    parser.add_argument("--seeds", type=int, default=8, help="run seeds that are compared (default 8)")
    parser.add_argument("--iterations", type=int, default=100, help="of a run (default 100)")
    parser.add_argument("--rates", default="1.5e-4,3e-4,6e-4", help="learning rates that are tried")
    parser.add_argument("--tune-seeds", type=int, default=2, help="runs of each rate (default 2)")
    parser.add_argument("--tune-iterations", type=int, default=60, help="of such a run (default 60)")
    parser.add_argument("--target", type=float, default=0.55, help="held-out score to be reached (default 0.55)")
    parser.add_argument("--ranks", type=int, default=3, help="coordinator, trainer and spot ranks (default 3: one)")
    parser.add_argument("--trace", help="trace of spot capacity that all arms with spot ranks play")
    parser.add_argument("--table", action="store_true", help="run nothing, compare what is there")
    parser.add_argument("settings", nargs="*", metavar="section/key=value", help="for all runs")
    options = parser.parse_args(arguments)
    options.arms = options.arms.split(",")
    unknown = [arm for arm in options.arms if arm not in ARMS]
    if unknown:
        parser.error(f"no arm {' '.join(unknown)}; there are {' '.join(ARMS)}")
    try:
        options.rates = [float(rate) for rate in options.rates.split(",")]
    except ValueError:
        parser.error(f"--rates {options.rates}: numbers separated by commas, as 1e-4,3e-4")
    wrong = [setting for setting in options.settings if "=" not in setting]
    if wrong:
        parser.error(f"'{wrong[0]}' is not section/key=value")
    return options


def run(options, arm, rate, seed, iterations):
    """The directory of a finished run, which is started or resumed if need be."""
    directory = options.out / arm / f"lr_{rate:g}" / f"seed_{seed}_of_{iterations}"
    if read_run(directory, iterations) is not None:
        return directory
    ranks = 2 if arm == "reserved" else options.ranks
    settings = [f"run/seed={seed}", f"run/iterations={iterations}", f"train/lr={rate:g}", "device/threads=1"]
    if options.trace and arm != "reserved":
        settings.append(f"spot/trace={options.trace}")
    words = [str(SOURCE / "scripts/mpirun.sh"), "-np", str(ranks), os.environ["SPOTLIGHT_BINARY"]]
    begun = any((directory / "checkpoints").glob("step_*/DONE"))
    if begun:
        words += ["-r", "latest", "-d", str(directory)]
    else:
        words += [str(SOURCE / f"inputs/baselines/{arm}.ini"), "-d", str(directory), *settings, *options.settings]
    directory.parent.mkdir(parents=True, exist_ok=True)
    with open(directory.with_suffix(".log"), "a", encoding="utf-8") as log:
        code = subprocess.run(words, cwd=SOURCE, stdout=log, stderr=log, check=False).returncode
    if code != 0:
        sys.exit(f"claims.sh: exit code {code} of {' '.join(words)}; see {directory.with_suffix('.log')}")
    result = read_run(directory, iterations)
    outcome = f"score {result.scores[-1]:.3f} in {result.wall[-1]:.0f} s"
    print(f"{arm:<18} lr {rate:<8g} seed {seed:<5} {outcome}", flush=True)
    return directory


def tune(options, arm):
    """The arm's learning rate, kept in OUT/ARM/rate.json."""
    file = options.out / arm / "rate.json"
    asked = {"rates": options.rates, "seeds": options.tune_seeds, "iterations": options.tune_iterations}
    if file.exists() and (kept := json.loads(file.read_text(encoding="utf-8")))["asked"] == asked:
        return kept["rate"]
    scores = {}
    for rate in options.rates:
        of_rate = []
        for seed in range(FIRST_TUNE_SEED, FIRST_TUNE_SEED + options.tune_seeds):
            result = read_run(run(options, arm, rate, seed, options.tune_iterations), options.tune_iterations)
            late = result.steps >= options.tune_iterations / 2
            of_rate.append(float(result.scores[late].mean()))
        scores[rate] = sum(of_rate) / len(of_rate)
    best = max(scores, key=scores.get) if len(options.rates) > 1 else options.rates[0]
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"rate": best, "scores": {f"{rate:g}": score for rate, score in scores.items()}, "asked": asked})
    file.write_text(text + "\n", encoding="utf-8")
    print(f"{arm:<18} learning rate {best:g} of " + ", ".join(f"{r:g}: {s:.3f}" for r, s in scores.items()), flush=True)
    return best


def main(arguments):
    options = parse(arguments)
    options.out = options.out.resolve()
    results = {}
    rates = {}
    for arm in options.arms:
        if options.table:
            file = options.out / arm / "rate.json"
            if not file.exists():
                continue
            rates[arm] = json.loads(file.read_text(encoding="utf-8"))["rate"]
        else:
            rates[arm] = tune(options, arm)
    # Seed by seed, so that a comparison that is stopped has the same seeds of all arms.
    for seed in range(options.seeds):
        for arm, rate in rates.items():
            directory = options.out / arm / f"lr_{rate:g}" / f"seed_{seed}_of_{options.iterations}"
            if not options.table:
                directory = run(options, arm, rate, seed, options.iterations)
            result = read_run(directory, options.iterations)
            if result is not None:
                results.setdefault(arm, {})[seed] = result
    if not results:
        sys.exit(f"claims.sh: {options.out} holds no finished run of {options.iterations} iterations")
    report.write(options.out, results, rates, options.target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
