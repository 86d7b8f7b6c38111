"""Scenarios in which spot ranks die, stop, hang, are warned, or fail, in all places of their work."""

import re
import signal
import time

from disk_and_network import wait_until
from scenario import scenario

RANKS = 10  # coordinator, trainer, 8 explorers


def one_after_the_other(run, number=signal.SIGKILL, most=0.4):
    """Kills explorers in random order until the run ends or none is left."""
    victims = run.explorers()
    run.random.shuffle(victims)
    for victim in victims:
        run.pause(0, most)
        if not run.working():
            return
        run.kill([victim], number)


@scenario("K1", "kill -9 of explorers, one after the other, until none is left", short=True)
def killed(run):
    run.start(RANKS)
    if run.wait_rows(1):
        one_after_the_other(run)
    run.wait()
    run.finish()


@scenario("K1-sp4", "the same in groups of 4", {"ranks/explorer_sp": 4})
def killed_sp4(run):
    killed(run)


@scenario("K2", "SIGTERM with a grace of 0.2, 2, 15 and 30 s, then kill -9")
def noticed(run):
    run.start(RANKS)
    if run.wait_rows(1):
        for victim, grace in zip(run.some_explorers(4), (0.2, 2, 15, 30)):
            if not run.working():
                break
            began = time.monotonic()
            victim.send(signal.SIGTERM)
            while victim.alive() and time.monotonic() - began < grace:
                time.sleep(0.005)
            if victim.alive():
                run.check(grace < 2, f"rank {victim.rank} has not left within {grace} s of its notice")
                victim.send(signal.SIGKILL)  # no loss for the ledger if it has just said that it leaves
            elif run.running():
                log = (run.directory / f"logs/rank_{victim.rank:04}.log").read_text(encoding="utf-8")
                run.check("left in order" in log, f"rank {victim.rank} did not leave in order")
    run.wait()
    run.finish()


@scenario("K3", "a notice that is withdrawn: the rank has left, and comes back as a new one", short=True)
def withdrawn(run):
    run.start(6)
    if run.wait_rows(1):
        for victim in run.some_explorers(1):
            victim.send(signal.SIGTERM)
        run.pause(0, 0.5)
        if run.working():
            run.join()
    run.wait()
    run.finish()


@scenario("K4", "SIGSTOP, shorter and longer than the detection time, then SIGCONT", {"run/iterations": 16})
def stopped(run):
    run.start(RANKS)
    if run.wait_rows(1):
        pauses = list(zip(run.some_explorers(2), (0.3, 2.5)))
        for victim, seconds in pauses:
            victim.send(signal.SIGSTOP)
            time.sleep(seconds)
            victim.send(signal.SIGCONT)
        for victim, seconds in pauses if run.running() else ():
            run.check(victim.alive() == (seconds < 1), f"a stop of {seconds} s: alive {victim.alive()} (detection 1 s)")
    run.wait()
    run.finish()


def add_regroup_place(place):
    @scenario(f"R1-{place}", f"a second loss at regroup.{place}", short=place == "split")
    def lost_in_regroup(run):
        run.environment["SPOTLIGHT_FAILPOINT"] = f"regroup.{place}:kill:nth={run.random.choice((2, 3))}:times=1"
        killed(run)


for name in ("begin", "shrunk", "gathered", "split", "done"):
    add_regroup_place(name)


@scenario("R2", "losses at any place of any regroup, the next ones in the recovery from the first")
def lost_again_and_again(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = f"regroup.*:kill:chance=0.08:times=5:seed={run.seed}"
    killed(run)


@scenario("R6", "six losses 0 to 30 ms apart: inside the calls of MPI by which a pool regroups")
def lost_inside_calls(run):
    run.start(RANKS)
    run.wait_rows(1)
    for _ in range(2):
        for _ in range(3):
            if run.working():
                run.kill(run.some_explorers(1))
                time.sleep(run.random.uniform(0, 0.03))
        run.pause(0.2, 0.5)
    run.wait()
    run.finish()


@scenario("R4", "the leader of a group dies, and the next one")
def leaders(run):
    run.start(RANKS)
    run.wait_rows(1)
    for _ in range(5):
        run.pause(0, 0.4)
        if run.working() and run.explorers():
            run.kill(run.explorers()[:1])
    run.wait()
    run.finish()


@scenario("R5", "8, 7, 5, 3, 1 survivors in groups of 4, and back by joining", {"ranks/explorer_sp": 4})
def odd_survivors(run):
    run.start(RANKS)
    run.wait_rows(1)
    for losses in (1, 2, 2, 2):
        run.pause(0.1, 0.4)
        if run.working():
            run.kill(run.some_explorers(losses))
    for ranks in (4, 3):
        if run.working():
            run.join(ranks)
    run.wait()
    run.finish()


@scenario("parked", "parked ranks take the places of the lost", {"ranks/parked": 4})
def parked(run):
    killed(run)


ALONE = {"ranks/parked": 4, "ranks/explorer_sp": 1}


@scenario("parked-alone", "parked ranks take the place of one that worked alone, whose group has nobody else", ALONE)
def parked_alone(run):
    run.start(RANKS)
    run.wait_rows(1)
    if run.working():
        run.kill([process for process in run.explorers() if process.rank == RANKS - 5])
        wait_until(run, lambda: works(run, RANKS - 4))
        run.check(not run.working() or works(run, RANKS - 4), "the first parked rank does not work")
    run.wait()
    run.finish()


def works(run, rank):
    """Whether it is in a group by the newest plan in the log."""
    plans = re.findall(r"groups ([\d |]+);", run.log_text())
    return bool(plans) and str(rank) in plans[-1].split()


def add_place(name, what, rule, short=False):
    @scenario(name, what, short=short)
    def fails(run):
        run.environment["SPOTLIGHT_FAILPOINT"] = rule.format(seed=run.seed, nth=run.random.randint(1, 12))
        run.start(RANKS)
        run.wait()
        run.finish()


EXPLORERS = "ranks=2+3+4+5+6+7+8+9"
add_place("W1", "the rank that fills the node's weights dies in between", f"weights.piece:kill:times=3:{EXPLORERS}")
add_place("W2", "the same when all is fetched", f"weights.fetched:kill:nth=2:times=2:{EXPLORERS}")
add_place("W3", "weights come so slowly that new ones are published meanwhile", "weights.piece:sleep:ms=150:chance=0.3")
add_place("C1-begin", "death before a commit", "commit.begin:kill:times=3:nth={nth}")
add_place("C1-posted", "death after a commit was sent", "commit.posted:kill:times=3:nth={nth}", True)
add_place("C1-push", "death with finished samples in hand", f"push.ready:kill:times=3:nth={{nth}}:{EXPLORERS}")
add_place("C1-pushed", "death after finished samples were sent", f"push.done:kill:times=3:nth={{nth}}:{EXPLORERS}")
add_place("M2-abort", "abort() in a step", "denoise.step:abort:times=3:nth={nth}")
add_place("M2-exit", "exit(3) in a step", "denoise.step:exit:times=3:nth={nth}")
add_place("M2-throw", "an exception in a step", "denoise.step:throw:times=3:nth={nth}")
SLOW = "denoise.step:sleep:ms=11500:times=2:nth={nth}"
add_place("C3", "leases run out in a slow step: late commits and results", SLOW)
add_place("G2", "a stuck rank that still beats", f"denoise.step:spin:ms=11500:times=1:nth={{nth}}:{EXPLORERS}")


@scenario("G1", "a straggler: one rank that stands still for most of the time")
def straggler(run):
    run.start(RANKS)
    run.wait_rows(1)
    slow = next(iter(run.some_explorers(1)), None)
    while slow is not None and run.running():
        slow.send(signal.SIGSTOP)
        time.sleep(0.08)
        slow.send(signal.SIGCONT)
        time.sleep(0.02)
    run.wait()
    run.finish()


@scenario("Q1", "50 random faults of all kinds, with joins", {"run/iterations": 60})
def fifty_faults(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = f"regroup.*:kill:chance=0.003:times=6:seed={run.seed}"
    run.start(RANKS)
    run.wait_rows(1)
    stopped_ranks = []
    for _ in range(50):
        run.pause(0, 0.5)
        if not run.working():
            break
        explorers = run.explorers()
        if len(explorers) < 3 or run.random.random() < 0.3:
            run.join(run.random.choice((1, 2, 4)))
            continue
        victim = run.random.choice(explorers)
        number = run.random.choice((signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGABRT))
        run.kill([victim], number)
        if number == signal.SIGSTOP:
            stopped_ranks.append(victim)
        if stopped_ranks and run.random.random() < 0.5:
            stopped_ranks.pop(0).send(signal.SIGCONT)
    for victim in stopped_ranks:
        victim.send(signal.SIGCONT)
    run.wait()
    run.finish()
