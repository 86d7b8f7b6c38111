"""Times of recovery, as a table: over N kills each at 8 and 16 explorers and with parked ranks, and N jobs that join.

The failpoint log has the moment at which each rank passes each place, so nothing is measured inside the product:
  detection    kill -> the first survivor begins to regroup
  waiting      -> the last one does: ranks come between two steps only
  shrink       -> only the living are in everybody's pool
  build        -> everybody has new groups
  repair       shrink and build of the same kill
  first step   kill -> the first step of a rank that has regrouped
  stall        time that a rank whose group had no loss spent in the regroup; `a step`: for comparison
  training     of the trainer, without and with a loss of a spot rank meanwhile
  redone       steps that were committed and done again, per victim (besides the one in work)
  join         start of a job of one process -> its first step
  restart      start of `-r latest` after the whole job was killed -> the first step: a system without repair
Groups of 2, batches of 1, a commit at every step, and so much to explore that nobody is idle for long.
"""

import os
import re
import signal
import time

import spotlight_run as sr
from chaos_run import SETTINGS, ChaosRun

BUSY = {**SETTINGS, "run/iterations": 16, "sampler/batch": 1, "eval/every": 100, "checkpoint/every": 100}
BUSY["explore/seeds"] = 64
JOBS_OF_A_RUN = 5


def percentiles(name, values, unit="ms", scale=1e3):
    ordered = sorted(value * scale for value in values)
    if not ordered:
        return f"{name:<40}{0:>7}"
    at = [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.95, 0.99)]
    return f"{name:<40}{len(ordered):>7}" + "".join(f"{value:>9.1f}" for value in [*at, ordered[-1]]) + f"  {unit}"


def mates(run, victim):
    """Processes of the victim's group, by the coordinator's log."""
    groups = re.findall(r"groups ([\d |]+);", run.log_text())
    if not groups:
        return set()
    of_victim = next((group.split() for group in groups[-1].split("|") if str(victim.rank) in group.split()), [])
    return {process.pid for process in run.explorers() if str(process.rank) in of_victim}


def first_of(passed, place, since=None):
    """{process: when it passed the place for the first time, after its moment in `since`}"""
    found = {}
    for seconds, pid, name in passed:
        if name == place and pid not in found and (since is None or pid in since and seconds > since[pid]):
            found[pid] = seconds
    return found


def times_of_kill(passed, killed_at):
    """Of a kill, from what survivors passed after it: ({name: seconds}, {process: seconds in the regroup})."""
    begins = first_of(passed, "regroup.begin")
    ends = first_of(passed, "regroup.done", begins)
    shrinks = first_of(passed, "regroup.shrunk", begins)
    through = [pid for pid in begins if pid in shrinks and pid in ends]
    if not through:
        return {}, {}
    last_begin, last_shrink = max(begins[pid] for pid in through), max(shrinks[pid] for pid in through)
    result = {
        "detection": min(begins.values()) - killed_at,
        "waiting": last_begin - min(begins.values()),
        "shrink": max(0.0, last_shrink - last_begin),
        "build": max(ends[pid] for pid in through) - last_shrink,
        "repair": max(ends[pid] for pid in through) - last_begin,
    }
    steps = first_of(passed, "denoise.step", ends)
    if steps:
        result["first step"] = min(steps.values()) - killed_at
    return result, {pid: ends[pid] - begins[pid] for pid in through}


def trainings(passed, killed_at):
    """Seconds of the trainings: ([those without a loss in them], [those with one])."""
    found, begun = ([], []), {}
    for seconds, pid, place in passed:
        if place == "train.begin":
            begun[pid] = seconds
        elif place == "train.push" and pid in begun:
            since = begun.pop(pid)
            found[any(since <= at < seconds for at in killed_at)].append(seconds - since)
    return found


def kill_figures(work, explorers, parked, events, seed):
    found, stalls, steps, redone, bad, number, seen = {}, [], [], [], 0, 0, 0
    calm, disturbed = [], []
    while seen < events and bad < 4:
        folder = work / f"figures-{explorers}-{parked}-{number}"
        run = ChaosRun(folder, seed + number, {**BUSY, "ranks/parked": parked}, True)
        run.start(2 + explorers + parked)
        run.wait_rows(1)
        kills = []
        while run.working() and len(kills) < explorers - 2:
            victims = [process for process in run.explorers() if process.rank < 2 + explorers]
            if not victims:  # it has ended meanwhile
                break
            victim = run.random.choice(victims)
            with_victim = mates(run, victim)
            kills.append((time.monotonic(), victim.pid, with_victim))
            run.kill([victim])
            run.pause(0.25, 0.4)
        run.wait()
        run.finish()
        passed = run.passed()
        for i, (killed_at, victim, with_victim) in enumerate(kills):
            until = kills[i + 1][0] if i + 1 < len(kills) else killed_at + 0.4
            window = [line for line in passed if killed_at <= line[0] < until and line[1] != victim]
            times, spent = times_of_kill(window, killed_at)
            seen += bool(times)
            for name, seconds in times.items():
                found.setdefault(name, []).append(seconds)
            stalls += [seconds for pid, seconds in spent.items() if pid not in with_victim]
        without, with_loss = trainings(passed, [killed_at for killed_at, _, _ in kills])
        calm += without
        disturbed += with_loss
        last = {}
        for seconds, pid, place in passed:
            if place == "denoise.step" and pid in last:
                steps.append(seconds - last[pid])
            last[pid] = seconds
            if place.startswith(("push", "regroup")):
                last.pop(pid)
        commits = [pid for _, pid, place in passed if place == "commit.posted"]
        committers = set(commits)  # not the trainers, which push, too
        explored = [pid for _, pid, place in passed if place == "push.ready" and pid in committers]
        excess = len(commits) - (run.settings["sampler/steps"] - 1) * len(explored)
        redone += [excess / len(kills)] if kills else []
        bad += bool(run.violations)
        label = f"{explorers} explorers, {parked} parked, run {number}"
        print(f"{label}: {len(kills)} kills", *run.violations, sep="\n  ", flush=True)
        number += 1
        if not run.violations:
            run.remove()
    name = f"{explorers}+{parked} parked" if parked else f"{explorers}"
    lines = [percentiles(f"{name} explorers: {what}", values) for what, values in found.items()]
    lines.append(percentiles(f"{name} explorers: stall", stalls))
    lines.append(percentiles(f"{name} explorers: a step", steps))
    lines.append(percentiles(f"{name} explorers: training, no loss", calm))
    lines.append(percentiles(f"{name} explorers: training with a loss", disturbed))
    lines.append(percentiles(f"{name} explorers: redone (runs)", redone, "steps a victim", 1))
    return lines, bad


def join_figures(work, events, seed):
    joins, restarts, bad, number = [], [], 0, 0
    while len(joins) < events and bad < 4:
        run = ChaosRun(work / f"figures-join-{number}", seed + number, dict(BUSY), True)
        run.start(4)
        run.wait_rows(1)
        began = []
        while run.working() and len(began) < JOBS_OF_A_RUN:
            started = time.monotonic()
            job = run.join()
            began.append((started, job.pid))
            run.pause(0.8, 1.2)
            job.send_signal(signal.SIGTERM)
            run.pause(0.1, 0.2)
        restarted = 0.0
        if run.working():
            run.kill_session(run.process)
            run.process.wait()
            run.end_all()
            restarted = time.monotonic()
            run.start(4, ["-r", "latest"])
        run.wait()
        run.finish()
        passed = run.passed()
        for started, pid in began:
            first = [seconds for seconds, p, place in passed if p == pid and place == "denoise.step"]
            joins += [first[0] - started] if first else []
        first = [seconds for seconds, _, place in passed if place == "denoise.step" and seconds > restarted]
        restarts += [first[0] - restarted] if restarted and first else []
        bad += bool(run.violations)
        print(f"joins, run {number}: {len(began)}", *run.violations, sep="\n  ", flush=True)
        number += 1
        if not run.violations:
            run.remove()
    return [
        percentiles("join: start to first step", joins),
        percentiles("restart of the whole run", restarts),
    ], bad


# By the name that scripts/chaos.sh takes: explorers and parked ranks of the kills; none: jobs that join.
PARTS = {"figures-8": (8, 0), "figures-parked": (8, 4), "figures-16": (16, 0), "figures-join": None}


def play(work, count, seed, names=()):
    """Prints a table of each named part, or of all, when it is done; the number of runs with violations."""
    events, bad = count or 200, 0
    for name in names or PARTS:
        ranks = PARTS[name]
        lines, worse = kill_figures(work, *ranks, events, seed) if ranks else join_figures(work, events, seed)
        bad += worse
        print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {sr.BINARY}")
        print(f"{'':<40}{'events':>7}{'p50':>9}{'p95':>9}{'p99':>9}{'max':>9}")
        print("\n".join(lines) + "\n", flush=True)
    return bad
