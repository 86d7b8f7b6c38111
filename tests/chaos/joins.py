"""Scenarios in which spot ranks come back: all lost, none at the start, whole jobs that come and go, traces."""

import os
import signal
import subprocess
import time

import growth
import spotlight_run as sr
from chaos_run import LIMIT
from scenario import scenario

RANKS = 10
TRACES = sr.SOURCE / "tests/data/traces"


@scenario("R3", "jobs that join and are killed at any moment of it", short=True)
def killed_while_joining(run):
    run.start(4)
    run.wait_rows(1)
    while run.working():
        job = run.join(run.random.choice((1, 2)))
        run.pause(0, 1.5)
        run.kill_session(job)
    run.wait()
    run.finish()


@scenario("R3-places", "newcomers die when they are welcome, and when they are ready")
def dying_newcomers(run):
    run.start(4)
    run.wait_rows(1)
    for place in ("join.welcomed", "join.ready", "regroup.begin", "regroup.split", "weights.fetched"):
        if run.working():
            job = run.join(run.random.choice((1, 2)), SPOTLIGHT_FAILPOINT=f"{place}:kill")
            run.pause(0.2, 0.6)
            if run.random.random() < 0.5:
                run.kill_session(job)
    run.wait()
    run.finish()


@scenario("R3-start", "a rank of a job that joins dies while MPI starts: the others give up", {"run/iterations": 24})
def dies_while_starting(run):
    run.start(4)
    run.wait_rows(1)
    if run.working():
        job = run.join(4)
        deadline = time.monotonic() + 10
        while run.working() and len(joined_ranks(run)) < 4 and time.monotonic() < deadline:
            time.sleep(0.002)
        run.pause(0, 0.3)
        run.kill(run.random.sample(joined := joined_ranks(run), min(1, len(joined))))
    run.wait()
    run.check(not run.jobs or ended(job, 15), "the job has not ended 15 s after the run")
    run.finish()


def ended(job, seconds):
    try:
        job.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


@scenario("S1", "all spot ranks at once: the reserved ones go on alone")
def all_lost(run):
    run.start(RANKS)
    if run.wait_rows(1):
        run.pause(0, 1)
        run.kill(run.explorers())
    run.wait()
    run.finish()


@scenario("S2", "no spot rank at the start; jobs join later")
def none_at_the_start(run):
    run.start(2)
    run.wait_rows(1)
    for ranks in (1, 4):
        if run.working():
            run.join(ranks)
            run.pause(0, 0.5)
    run.wait()
    run.finish()


@scenario("S3", "70 % at once, and all of them back as jobs")
def mass_loss(run):
    run.start(RANKS)
    if run.wait_rows(1):
        run.pause(0, 0.5)
        run.kill(run.some_explorers(6))
        run.pause(0.1, 0.3)
        if run.working():
            run.join(4)
            run.join(2)
    run.wait()
    run.finish()


@scenario("S4", "flapping: a job comes and goes all the time", {"run/iterations": 24})
def flapping(run):
    run.start(4)
    run.wait_rows(1)
    while run.working():
        job = run.join(2)
        run.pause(0.8, 2)
        if run.random.random() < 0.5:
            run.kill_session(job)
        else:
            job.send_signal(signal.SIGTERM)
    run.wait()
    run.finish()


def add_trace(name, file, settings):
    @scenario(f"S5-{name}", f"the trace {file}, faster", {"run/iterations": 24, **settings})
    def trace(run):
        # Another seed: another start in the pace, which decides what an event hits.
        scale = float(run.settings["spot/time_scale"]) * run.random.uniform(0.7, 1.4)
        run.start(RANKS, spot__trace=TRACES / file, spot__time_scale=scale)
        run.wait()
        log = run.log_text()
        run.check("[spot] trace: preemption" in log or "[spot] trace: notice" in log, "the trace was not played")
        run.finish(ledger=False)


add_trace("aws", "bamboo_aws_p3.csv", {"spot/time_scale": 3000, "spot/notice": 0})
add_trace("gcp", "bamboo_gcp_a100.txt", {"spot/time_scale": 2000, "spot/notice": 0})
add_trace("g4dn", "spotserve_aws_g4dn.jsonl", {"spot/time_scale": 100, "spot/notice": 0.3})


@scenario("N1", "a joined job's node is lost: mpirun and all ranks at once")
def node_lost(run):
    run.start(4)
    run.wait_rows(1)
    if run.working():
        job = run.join(4)
        run.pause(1, 2.5)
        run.kill_session(job)
    run.wait()
    run.finish()


@scenario("N2", "a joined job's mpirun dies and its ranks live; its ranks die and mpirun lives")
def agent_lost(run):
    run.start(4)
    run.wait_rows(1)
    for agent in (True, False):
        if not run.working():
            break
        job = run.join(2)
        run.pause(1, 2)
        if agent:
            run.killed_launchers = True
            agents = [
                pid for pid, _ in run.members() if os.getsid(pid) == job.pid and pid not in {p.pid for p in run.ranks()}
            ]
            for pid in agents:
                os.kill(pid, signal.SIGKILL)
        else:
            run.kill([process for process in run.ranks() if process.joined and os.getsid(process.pid) == job.pid])
    run.wait()
    run.finish()


@scenario("Q2", "200 joins and kills: nothing grows", {"run/iterations": 5000, "spot/cool_down": 0})
def two_hundred(run):
    run.start(4)
    run.wait_rows(1)
    watch = growth.Growth(run)
    joined, give_up = 0, time.monotonic() + LIMIT
    while run.working() and joined < 200 and time.monotonic() < give_up:
        for _ in range(2):
            run.join()
        deadline = time.monotonic() + 3
        before, joined = joined, run.log_text().count("joins as rank")
        while run.working() and time.monotonic() < deadline and joined < before + 2:
            time.sleep(0.02)
            joined = run.log_text().count("joins as rank")
        run.pause(0.0, 0.15)
        if run.running():
            run.kill(joined_ranks(run))
        watch.look()
        run.collect_jobs()
    watch.check()
    run.check(joined >= 200, f"only {joined} joins within {LIMIT:.0f} s")
    run.end_at_border(4)
    run.finish()


def joined_ranks(run):
    return [process for process in run.ranks() if process.joined]
