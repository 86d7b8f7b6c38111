"""Scenarios of memory (none left, damaged copies of the weights) and of rewards (not a number, a scorer that fails)."""

import os
import pathlib
import random
import resource
import subprocess
import sys
import threading
import time

import spotlight_run as sr
from chaos_run import PRIVATE_MEMORY, SHARED_MEMORY
from losses import EXPLORERS, add_place
from reserved import go_on
from scenario import scenario

RANKS = 10  # coordinator, trainer, 8 explorers
LORA = {"lora/rank": 4}  # without an adapter there is no base that stays
HEADER = 4096  # bytes, before the weights in a file of the node's memory


def rank_logs(run):
    return "".join(path.read_text(errors="replace") for path in (run.directory / "logs").iterdir())


add_place("M1-alloc", "no memory in a step", "denoise.step:nomem:times=3:nth={nth}")
add_place("M1-start", "no memory while spot ranks are built", f"explorer.begin:nomem:times=3:{EXPLORERS}")


@scenario("M1-limit", "explorers get no more memory than they have (RLIMIT_AS)")
def limited(run):
    run.may_crash = True  # libraries that check no allocation
    run.start(RANKS)
    if run.wait_rows(1):
        for victim in run.some_explorers(4):
            run.pause(0, 0.5)
            try:
                pages = int((pathlib.Path("/proc") / str(victim.pid) / "statm").read_text(encoding="utf-8").split()[0])
                most = pages * resource.getpagesize()
                resource.prlimit(victim.pid, resource.RLIMIT_AS, (most, most))
            except OSError:  # the run was faster
                pass
    run.wait()
    run.finish()


@scenario("M1-trainer", "no memory at the trainer: the run ends, and goes on with -r latest")
def trainer_without_memory(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = f"train.begin:nomem:nth={run.random.randint(2, 8)}"
    run.start(RANKS)
    run.wait(1)
    del run.environment["SPOTLIGHT_FAILPOINT"]
    go_on(run, RANKS)


def resize(size):
    return subprocess.run(["mount", "-o", f"remount,size={size}", SHARED_MEMORY], check=False).returncode == 0


@scenario("M1-shm", "no shared memory is left: ranks keep copies of their own, fetched from each other, some damaged")
def no_shared_memory(run):
    if not PRIVATE_MEMORY:
        print("M1-shm skipped: /dev/shm is not the suite's own")
        return
    # Every source sends two of its pieces damaged; a receiver asks another one, or again.
    run.environment["SPOTLIGHT_FAILPOINT"] = ";".join(
        f"weights.served:flip:nth={nth}" for nth in run.random.sample(range(1, 9), 2)
    )
    run.start(RANKS)
    run.wait_rows(1)
    usage = os.statvfs(SHARED_MEMORY)
    full = resize((usage.f_blocks - usage.f_bfree) * usage.f_frsize)
    try:
        if run.working():
            run.kill(run.explorers()[:1])
            run.join()
        run.wait()
        logs = rank_logs(run)
        run.check(full, "no right to make /dev/shm smaller")
        run.check("keeps a copy of its own" in logs, "no rank has found the memory full")
        run.check("came damaged" in logs or "is of no use" in logs, "no damaged piece was noticed")
        lost = run.log_text().count(" is lost; ")
        run.check(lost <= 1, f"{lost} ranks are lost, of which one was killed")
        run.finish()
    finally:
        resize("50%")


class Damage:
    """Replaces each new file of a run's shared memory whose name has `name` in it by a copy with one byte changed.
    Who has the file mapped keeps the good one; who comes later gets the damaged."""

    def __init__(self, name, seed):
        self.name, self.random = name, random.Random(seed)
        self.seen, self.done = set(), False
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self):
        while not self.done:
            for path in SHARED_MEMORY.glob(f"spotlight-*{self.name}*"):
                if path not in self.seen:
                    self.seen.add(path)
                    self.replace(path)
            time.sleep(0.001)

    def replace(self, path):
        aside = SHARED_MEMORY / f"chaos-{os.getpid()}"
        try:
            data = bytearray(path.read_bytes())
            # The upper byte of a float: what is computed with it shows.
            data[HEADER + 4 * self.random.randrange((len(data) - HEADER) // 4) + 3] ^= 0x40
            aside.write_bytes(bytes(data))
            aside.chmod(0o400)
            aside.replace(path)
        except OSError:  # the file has gone
            aside.unlink(missing_ok=True)

    def end(self):
        self.done = True
        self.thread.join()


@scenario("W4", "a byte of the node's copy of new weights is changed before a neighbour maps it")
def damaged_copy(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = "weights.wanted:sleep:ms=60:chance=0.5"
    damage = Damage("-weights-", run.seed)
    try:
        run.start(RANKS)
        run.wait()
    finally:
        damage.end()
    run.check("is damaged; it is fetched again" in rank_logs(run), "no damage was noticed")
    run.finish()


@scenario("W4-lora", "the same of an adapter", LORA)
def damaged_adapter(run):
    damaged_copy(run)


@scenario("W4-base", "a byte of the node's copy of the base weights is changed before newcomers map it", LORA)
def damaged_base(run):
    run.start(RANKS)
    run.wait_rows(1)
    damage = Damage("-base-", run.seed)
    time.sleep(0.1)
    damage.end()
    joined = [run.join(ranks) for ranks in (1, 2) if run.working()]
    run.wait()
    for job in joined:
        run.check(job.wait(timeout=60) != 0, "a newcomer with damaged weights has counted")
    run.finish()


@scenario("W4-pieces", "a byte of the weights is changed on their way")
def damaged_on_the_way(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = f"weights.served:flip:nth={run.random.randint(1, 8)}"
    run.start(RANKS)
    run.wait()
    run.check("came damaged" in rank_logs(run), "no damaged piece was noticed")
    run.finish()


NAN = "{place}:nan:chance=0.03:seed={seed}"


def add_nan(place):
    @scenario(f"M3-{place}", f"a sample's {place} is not a number: it is left out and counted")
    def spoiled(run):
        run.environment["SPOTLIGHT_FAILPOINT"] = NAN.format(place=f"sample.{place}", seed=run.seed)
        run.start(RANKS)
        run.wait()
        rows = sr.history(run.directory)[:-1]
        run.check("is left out" in run.log_text(), "no sample was left out")
        run.check(sum(row["reward_left_out"] for row in rows) > 0 or place == "reward", "none was counted")
        run.check(all(row["reward_mean"] is not None for row in rows), "the mean reward is poisoned")
        run.check(all(row["policy_loss"] is not None for row in rows), "the loss is poisoned")
        run.finish(bits=False)


add_nan("reward")
add_nan("latents")


@scenario("M3-commit", "a commit is not a number, and its rank dies: the step before is used")
def spoiled_commits(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = (
        f"commit.latents:nan:chance=0.3:seed={run.seed};commit.posted:kill:chance=0.05:times=4:{EXPLORERS}"
    )
    run.start(RANKS)
    run.wait()
    run.finish()


SCORED = {
    "reward/terms": "command:1",
    "reward/command": f"{sys.executable} {pathlib.Path(__file__).resolve().parent / 'scorer.py'}",
}


@scenario("M3-scorer", "the scorer of a rank crashes: the run ends, and goes on with -r latest", SCORED)
def scorer_crashes(run):
    run.environment["SPOTLIGHT_CHAOS_SCORER"] = f"crash {run.random.randint(5, 30)}"
    run.start(RANKS)
    text = run.wait(sr.FILE_SYSTEM)
    run.check("reward/command" in text and "without an answer" in text, f"the scorer is not named: {text[-300:]}")
    del run.environment["SPOTLIGHT_CHAOS_SCORER"]
    go_on(run, RANKS)


@scenario("M3-slow", "the scorer takes a hundred times as long, now and then", SCORED)
def scorer_slow(run):
    run.environment["SPOTLIGHT_CHAOS_SCORER"] = f"slow {run.seed}"
    run.start(RANKS)
    if run.wait_rows(1):
        run.pause(0, 1)
        if run.working():
            run.kill(run.some_explorers(2))
    run.wait()
    run.finish()
