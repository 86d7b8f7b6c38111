"""Times of recovery, as a table: over N kills each at 8 and 16 explorers, and of jobs that join.

The failpoint log has the moment at which each rank passes each place, so nothing is measured inside the product:
  detection     kill -> the first survivor begins to regroup
  shrink        a rank has begun -> only the living are in its pool (waiting for ranks in a step included)
  build         -> plan made and new groups agreed on
  first step    kill -> the first step of any group that regrouped; `all steps`: of the last one
  stall         of a group that had no loss: longest time between two of its steps around the kill
  redone        steps that were committed and done again, per victim (besides the one in work)
  join          start of a job of one process -> its first step
  restart       kill -9 of the whole job -> the first step of `-r latest`: what a system without repair does
Batches of 1 and commits at every step, so that a step is a step of one sample.
"""

import os
import signal
import time

import spotlight_run as sr
from chaos_run import SETTINGS, ChaosRun

KILLS_OF_A_RUN = 5


def percentiles(name, values, unit="ms", scale=1e3):
    if not values:
        return f"{name:<34}{0:>6}"
    ordered = sorted(value * scale for value in values)
    at = [ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.95, 0.99)]
    return f"{name:<34}{len(ordered):>6}" + "".join(f"{value:>10.1f}" for value in [*at, ordered[-1]]) + f"  {unit}"


def times_of_kill(passed, killed_at, victim, until):
    """Of one kill, from the places passed between it and `until`: {name: seconds}, and stalls of untouched groups."""
    after = [(seconds, pid, place) for seconds, pid, place in passed if killed_at <= seconds < until and pid != victim]
    begins = {}
    result = {}
    for seconds, pid, place in after:
        if place == "regroup.begin" and pid not in begins:
            begins[pid] = seconds
    if not begins:
        return {}, []
    result["detection"] = min(begins.values()) - killed_at
    ends, shrinks = {}, {}
    for seconds, pid, place in after:
        if place == "regroup.shrunk" and pid in begins:
            shrinks[pid] = seconds
        if place == "regroup.done" and pid in begins and pid not in ends:
            ends[pid] = seconds
    both = [pid for pid in shrinks if pid in ends]
    if not both:
        return result, []
    first = min(begins.values())
    last_begin = max(begins[pid] for pid in both)
    shrunk = max(shrinks[pid] for pid in both)
    result["waiting for ranks in a step"] = last_begin - first
    result["shrink"] = shrunk - last_begin
    result["build"] = max(ends[pid] for pid in both) - shrunk
    steps = {}
    for seconds, pid, place in after:
        if place == "denoise.step" and pid in ends and seconds > ends[pid] and pid not in steps:
            steps[pid] = seconds
    if steps:
        result["kill to first step"] = min(steps.values()) - killed_at
    stalls = []
    for pid in ends:
        before = [seconds for seconds, p, place in passed if p == pid and place == "denoise.step" and seconds < killed_at]
        if before and pid in steps and killed_at - before[-1] < 0.1:
            stalls.append(steps[pid] - before[-1])
    return result, stalls


def kill_figures(work, explorers, events, seed):
    found, stalls, redone, bad, number = {}, [], [], 0, 0
    seen = 0
    while seen < events:
        run = ChaosRun(work / f"figures-{explorers}-{number}", seed + number, dict(SETTINGS), log=True)
        run.settings.update({"run/iterations": 30, "sampler/batch": 1, "eval/every": 100, "checkpoint/every": 100})
        run.start(2 + explorers)
        run.wait_rows(1)
        kills = []
        while run.working() and len(kills) < min(KILLS_OF_A_RUN, explorers - 2):
            victim = run.random.choice(run.explorers())
            kills.append((time.monotonic(), victim.pid))
            run.kill([victim])
            run.pause(0.5, 0.8)
        run.wait()
        run.finish()
        passed = run.passed()
        for i, (killed_at, victim) in enumerate(kills):
            until = kills[i + 1][0] if i + 1 < len(kills) else killed_at + 2
            times, stalled = times_of_kill(passed, killed_at, victim, until)
            seen += bool(times)
            for name, seconds in times.items():
                found.setdefault(name, []).append(seconds)
            stalls += stalled
        places = [place for _, _, place in passed]
        excess = places.count("commit.posted") - (run.settings["sampler/steps"] - 1) * places.count("push.ready")
        if kills:
            redone.append(max(0, excess) / len(kills))
        bad += bool(run.violations)
        print(f"{explorers} explorers, run {number}: {len(kills)} kills", *run.violations, sep="\n  ", flush=True)
        number += 1
        if not run.violations:
            run.remove()
        elif bad > 3:
            break
    lines = [percentiles(f"{explorers} explorers: {name}", values) for name, values in found.items()]
    lines.append(percentiles(f"{explorers} explorers: stall of a group", stalls))
    lines.append(percentiles(f"{explorers} explorers: redone a victim", redone, "steps", 1))
    return lines, bad


def join_figures(work, events, seed):
    joins, restarts, bad, number = [], [], 0, 0
    while len(joins) < events and number < events:
        run = ChaosRun(work / f"figures-join-{number}", seed + number, dict(SETTINGS), log=True)
        run.settings.update({"run/iterations": 60, "sampler/batch": 1, "eval/every": 100})
        run.start(4)
        run.wait_rows(1)
        began = []
        while run.working() and len(began) < KILLS_OF_A_RUN:
            started = time.monotonic()
            job = run.join()
            began.append((started, job.pid))
            run.pause(0.8, 1.2)
            job.send_signal(signal.SIGTERM)
            run.pause(0.1, 0.2)
        restarted = 0.0
        if run.working():
            run.kill_session(run.process)
            restarted = time.monotonic()
            run.process.wait()
            run.end_all()
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
        elif bad > 3:
            break
    return [
        percentiles("join: start to first step", joins),
        percentiles("restart of the whole run", restarts),
    ], bad


def play(work, count, seed):
    events = count or 200
    lines, bad = [], 0
    for explorers in (8, 16):
        more, worse = kill_figures(work, explorers, events, seed)
        lines, bad = lines + more, bad + worse
    more, worse = join_figures(work, events, seed)
    lines, bad = lines + more, bad + worse
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {sr.BINARY}")
    print(f"{'':<34}{'events':>6}{'p50':>10}{'p95':>10}{'p99':>10}{'max':>10}")
    print("\n".join(lines))
    return bad
