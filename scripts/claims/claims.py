"""Runs every arm (inputs/baselines/ARM.ini) with its own learning rate and several run seeds, then compares them.

    claims.py [-o OUT] [--arms A,B] [--seeds N] [--iterations N] [--rates R,S] [--tune-seeds N] [--target SCORE]
              [--ranks N] [--trace FILE] [--table] [section/key=value ...]

The learning rate of an arm is the one of `--rates` with the best mean held-out score over the second half of
`--tune-seeds` short runs, whose run seeds (1000, 1001, ...) are not those that are compared; a rate with which a run
diverges is out. OUT/claims.json says what the runs there have in common (program, inputs, trace, ranks, settings); a
call with other ones is refused. Exit code: 0; 1 with one line if a run fails; 2 for a mistake in the arguments; 75 when
it is stopped (Ctrl-C, TERM), and the run in work with it: the same call goes on.
"""

import argparse
import hashlib
import json
import math
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import report
from run_results import read_run

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ARMS = ("spotlight", "unplanned", "critical", "rollouts_only", "reserved_rollouts", "reserved")
FIRST_TUNE_SEED = 1000
DIVERGED = "training diverged"  # what the program says then


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
    if options.trace and not os.path.isfile(options.trace):
        parser.error(f"--trace {options.trace}: there is no such file")
    trainers = [setting.split("=")[1] for setting in options.settings if setting.startswith("ranks/trainers=")]
    options.reserved_ranks = 1 + (int(trainers[-1]) if trainers and trainers[-1].isdigit() else 1)
    return options


def digest(file):
    return hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest()[:16] if file else ""


def require_alike(options):
    """Runs of another program or input must not be compared with those that are there."""
    alike = {
        "program": digest(os.environ["SPOTLIGHT_BINARY"]),
        "trace": digest(options.trace),
        "ranks": options.ranks,
        "settings": sorted(options.settings),
    }
    for arm in options.arms:
        alike[f"inputs/baselines/{arm}.ini"] = digest(SOURCE / f"inputs/baselines/{arm}.ini")
    file = options.out / "claims.json"
    kept = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    other = [name for name, value in alike.items() if kept.setdefault(name, value) != value]
    if other:
        print(f"claims.sh: the runs in {options.out} differ in: {', '.join(other)} (claims.json there); take another "
              "folder (-o), or remove this one", file=sys.stderr)  # fmt: skip
        sys.exit(2)
    options.out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def call(words, log):
    """Exit code of a run. When this program is stopped, so is the run, in order."""
    with open(log, "a", encoding="utf-8") as output:
        process = subprocess.Popen(words, cwd=SOURCE, stdout=output, stderr=output, start_new_session=True)
        try:
            return process.wait()
        except KeyboardInterrupt:
            print("claims.sh: asked to stop; the run in work ends after its iteration", file=sys.stderr, flush=True)
            end(process)
            raise


def end(process):
    """Asks the run to stop, once more (which ends it at once) whenever this program is asked again; returns at its end."""
    while True:
        process.terminate()
        try:
            process.wait()
            return
        except KeyboardInterrupt:
            continue


def run(options, arm, rate, seed, iterations):
    """The result of a run, which is started or resumed if need be; None: it diverged."""
    directory = options.out / arm / f"lr_{rate:g}" / f"seed_{seed}_of_{iterations}"
    log = directory.with_suffix(".log")
    if (result := read_run(directory, iterations)) is not None:
        return result
    ranks = options.ranks if arm != "reserved" else options.reserved_ranks
    settings = [f"run/seed={seed}", f"run/iterations={iterations}", f"train/lr={rate:g}", "device/threads=1"]
    if options.trace and arm != "reserved":
        settings.append(f"spot/trace={options.trace}")
    words = [str(SOURCE / "scripts/mpirun.sh"), "-np", str(ranks), os.environ["SPOTLIGHT_BINARY"]]
    if any((directory / "checkpoints").glob("step_*/DONE")):
        words += ["-r", "latest", "-d", str(directory)]
    else:
        shutil.rmtree(directory, ignore_errors=True)  # it was stopped before its first checkpoint
        words += [str(SOURCE / f"inputs/baselines/{arm}.ini"), "-d", str(directory), *settings, *options.settings]
    directory.parent.mkdir(parents=True, exist_ok=True)
    code = call(words, log)
    result = read_run(directory, iterations)
    if code != 0 or result is None:
        if DIVERGED in log.read_text(encoding="utf-8", errors="replace"):
            print(f"{arm:<18} lr {rate:<8g} seed {seed:<5} diverged", flush=True)
            return None
        sys.exit(f"claims.sh: exit code {code} of {' '.join(words)}; see {log}")
    outcome = f"score {result.scores[-1]:.3f} in {result.wall[-1]:.0f} s"
    print(f"{arm:<18} lr {rate:<8g} seed {seed:<5} {outcome}", flush=True)
    return result


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
            result = run(options, arm, rate, seed, options.tune_iterations)
            late = [] if result is None else result.scores[result.steps >= options.tune_iterations / 2]
            of_rate.append(float(sum(late) / len(late)) if len(late) else -math.inf)
        scores[rate] = sum(of_rate) / len(of_rate)
    best = max(scores, key=scores.get)
    if scores[best] == -math.inf:
        sys.exit(f"claims.sh: {arm} diverged at every rate of --rates; try smaller ones")
    if len(options.rates) > 1 and best in (min(options.rates), max(options.rates)):
        print(f"{arm:<18} {best:g} is at the edge of --rates: one beyond it may be better", flush=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"rate": best, "scores": {f"{rate:g}": score for rate, score in scores.items()}, "asked": asked})
    file.write_text(text + "\n", encoding="utf-8")
    print(f"{arm:<18} learning rate {best:g} of " + ", ".join(f"{r:g}: {s:.3f}" for r, s in scores.items()), flush=True)
    return best


def compare(options):
    """{arm: {seed: result}}, {arm: rate}: of all runs, or with --table of those that are there."""
    results, rates = {}, {}
    for arm in options.arms:
        if not options.table:
            rates[arm] = tune(options, arm)
        elif (file := options.out / arm / "rate.json").exists():
            rates[arm] = json.loads(file.read_text(encoding="utf-8"))["rate"]
    # Seed by seed, so that a comparison that is stopped has the same seeds of all arms.
    for seed in range(options.seeds):
        for arm, rate in rates.items():
            directory = options.out / arm / f"lr_{rate:g}" / f"seed_{seed}_of_{options.iterations}"
            if options.table:
                result = read_run(directory, options.iterations)
            else:
                result = run(options, arm, rate, seed, options.iterations)
            if result is not None:
                results.setdefault(arm, {})[seed] = result
    return results, rates


def main(arguments):
    options = parse(arguments)
    options.out = options.out.resolve()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not options.table:
        require_alike(options)
    try:
        results, rates = compare(options)
    except KeyboardInterrupt:
        print("claims.sh: stopped; the same call goes on", file=sys.stderr)
        return 75
    if not results:
        sys.exit(f"claims.sh: {options.out} holds no finished run of {options.iterations} iterations")
    report.write(options.out, results, rates, options.target)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
