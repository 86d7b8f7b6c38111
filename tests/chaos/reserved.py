"""Scenarios in which reserved ranks die: the run ends with code 75, and `-r latest` goes on to the same bits."""

import signal

import spotlight_run as sr
from scenario import scenario

RANKS = 6


def go_on(run, ranks=RANKS):
    run.start(ranks, ["-r", "latest"])
    run.wait()
    run.finish()


def lose(run, number=signal.SIGKILL):
    """Kills the coordinator or the trainer at a random time of a run, then goes on."""
    run.start(RANKS)
    if run.wait_rows(1):
        run.pause(0, 1)
    if run.working():
        run.kill([run.coordinator() if run.random.random() < 0.5 else run.trainer()], number)
        run.killed_at_work = False
        run.wait(sr.STOPPED)
        run.environment.pop("SPOTLIGHT_FAILPOINT", None)
        go_on(run)
    else:
        run.wait()
        run.finish()


@scenario("D1", "the trainer dies at the start or the end of its work", short=True)
def trainer_lost(run):
    place = run.random.choice(("train.begin", "train.push"))
    run.environment["SPOTLIGHT_FAILPOINT"] = f"{place}:kill:nth={run.random.randint(1, 10)}"
    run.start(RANKS)
    run.wait(sr.STOPPED)
    del run.environment["SPOTLIGHT_FAILPOINT"]
    go_on(run)


@scenario("D1-used", "committed rollouts of the broken iteration are used again")
def rollouts_used_again(run):
    # The second iteration has no evaluation, so all of its samples are rollouts and in the store.
    run.environment["SPOTLIGHT_FAILPOINT"] = "train.begin:kill:nth=2"
    run.start(RANKS)
    run.wait(sr.STOPPED)
    del run.environment["SPOTLIGHT_FAILPOINT"]
    run.environment["SPOTLIGHT_FAILPOINT_LOG"] = str(run.places)
    go_on(run)
    places = [place for _, _, place in run.passed()] if run.places.exists() else []
    again = places.index("train.begin") if "train.begin" in places else 0
    pushed = places[:again].count("push.ready")
    run.check("train.begin" in places, "it has not trained")
    run.check(pushed == 0, f"{pushed} batches were denoised again before the training of the broken iteration")


@scenario("D2", "coordinator or trainer at a random time", short=True)
def reserved_lost(run):
    lose(run)


@scenario("D2-store", "the coordinator dies while it writes to the store")
def dies_writing(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = f"store.write:kill:nth={run.random.randint(20, 400)}"
    run.start(RANKS)
    run.wait(sr.STOPPED)
    del run.environment["SPOTLIGHT_FAILPOINT"]
    go_on(run)


@scenario("D2-spot", "spot ranks die, then a reserved one, and again after the restart")
def both_lost(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = f"denoise.step:kill:chance=0.01:times=3:seed={run.seed}"
    lose(run)


@scenario("D4", "kill -9 of the whole job, mpirun too, again and again")
def job_killed(run):
    run.start(RANKS)
    rows = safe = 0
    for _ in range(3):
        if not run.wait_rows(max(rows, 1)):
            break
        run.pause(0, 1)
        if not run.running():
            break
        run.kill_session(run.process)
        run.process.wait()
        # Not the rows of the history: the last one is written before its checkpoint is.
        now = run.checkpoint()
        run.check(now >= safe, f"went back from checkpoint {safe} to {now}")
        safe, rows = now, run.rows()
        run.end_all()
        run.start(RANKS, ["-r", "latest"])
    run.wait()
    run.finish()


def damage(run, path):
    """Makes a file of the store unreadable in one of the ways that disks and people have."""
    data = bytearray(path.read_bytes())
    way = run.random.choice(("flip", "truncate", "empty", "foreign"))
    if way == "flip":
        for _ in range(20):
            data[run.random.randrange(len(data))] ^= 1 << run.random.randrange(8)
    elif way == "truncate":
        data = data[: run.random.randrange(1, len(data))]
    elif way == "empty":
        data = bytearray()
    else:
        data = bytearray(run.random.randbytes(5000))
    path.write_bytes(bytes(data))


@scenario("F3", "files of the store are damaged between the loss and the restart")
def damaged_store(run):
    run.start(RANKS)
    run.wait_rows(2)
    run.pause(0, 0.5)
    if run.working():
        run.kill([run.trainer()])
        run.killed_at_work = False
        run.wait(sr.STOPPED)
        for path in sorted((run.directory / "store").glob("*.h5")):
            damage(run, path)
        go_on(run)
    else:
        run.wait()
        run.finish()
