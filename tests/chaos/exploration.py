"""Scenarios of exploration beside training: losses in the training window, slow explorers, versions of the weights."""

import json
import subprocess

import spotlight_run as sr
from reserved import go_on
from scenario import scenario

RANKS = 10  # coordinator, trainer, 8 explorers
EXPLORED = 32  # 2 prompts, 16 seeds each
PYTHON = sr.SOURCE / ".deps/python/bin/python"  # with h5py


@scenario("T1", "explorers die while a trainer trains")
def lost_in_training(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = f"explore.step:kill:chance=0.02:times=6:seed={run.seed}"
    run.start(RANKS)
    run.wait()
    run.finish()


DEADLINE = {"explore/budget": "deadline", "explore/planner": "fixed"}


@scenario("T2", "explorers are slow: a deadline cuts exploration", DEADLINE)
def cut_at_the_deadline(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = "explore.step:sleep:ms=60"  # 0.4 s a batch
    run.start(RANKS)
    run.wait()
    rows = [row for row in sr.history(run.directory) if row.get("explore_images") is not None]
    tail = max((row["time_explore_tail_s"] for row in rows), default=0)
    run.check(len(rows) >= 10, f"{len(rows)} iterations have explored")
    run.check(tail < 1.2, f"training's end waited {tail:.2f} s for exploration")
    run.check(any(row["explore_images"] < EXPLORED for row in rows), "nothing was cut")
    run.check(all(row["policy_loss"] is not None for row in rows), "an iteration has not trained")
    run.finish(bits=False)


@scenario("T2-fixed", "explorers are slow: a fixed budget is awaited")
def awaited(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = "explore.step:sleep:ms=60"
    run.start(RANKS)
    run.wait()
    rows = sr.history(run.directory)[:-2]  # the last iteration explores nothing, and the last row is the evaluation
    run.check(all(row["explore_images"] == EXPLORED for row in rows), "exploration was cut")
    run.finish()


# Prints {"kind version - iteration": records} of all records of a store, those that were overtaken included.
READ = """
import collections, glob, json, sys
import h5py
found = collections.Counter()
for path in glob.glob(sys.argv[1] + "/iteration_*.h5"):
    records = h5py.File(path)["records"][...].ravel()
    for record in records[records["sequence"] > 0]:
        found[f"{record['kind']} {int(record['weight_version']) - int(record['iteration'])}"] += 1
print(json.dumps(found))
"""


@scenario("T3", "new weights come while explorers hold old ones: each sample names its version, at most one old")
def stale(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = "weights.piece:sleep:ms=150:chance=0.3"
    run.start(RANKS)
    run.wait_rows(2)
    run.pause(0, 1)
    if run.working():
        run.kill_session(run.process)  # else the store would be gone
        run.process.wait()
        run.end_all()
        if PYTHON.exists():
            words = [PYTHON, "-c", READ, run.directory / "store"]
            found = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
            run.check(found, "the store has no records")
            run.check(set(found) <= {"0 0", "1 -1", "2 0"}, f"versions of other iterations: {found}")
        else:
            print("T3: no h5py, the versions are not read")
        go_on(run, RANKS)  # the bits tell that each sample was made with the version that it names
    else:
        run.wait()
        run.finish()
