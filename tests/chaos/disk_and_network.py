"""Scenarios of the store's disk, the clock, the input, and the network between the coordinator and a joined job."""

import os
import shutil
import subprocess
import time

import spotlight_run as sr
from proxy import Proxy
from reserved import damage
from scenario import scenario

RANKS = 6


def with_losses(run, **changed):
    """A run in which three ranks die, so that the store is needed."""
    run.environment["SPOTLIGHT_FAILPOINT"] = (
        f"denoise.step:kill:chance=0.02:times=3:seed={run.seed};" + run.environment.get("SPOTLIGHT_FAILPOINT", "")
    )
    run.start(RANKS, **changed)


@scenario("F1", "the store's disk is full: the run goes on and says so")
def full_disk(run):
    disk = run.folder / "disk"
    disk.mkdir()
    size = run.random.choice((64, 256, 400))  # KiB; an iteration's file has about 200
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", disk], check=False).returncode != 0:
        print("F1 skipped: no right to mount a small disk")
        return
    try:
        with_losses(run, store__path=disk / "store")
        text = run.wait()
        run.check(size > 100 or "No space left" in text, f"the full disk of {size} KiB is not named")
        run.finish()
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@scenario("F2", "the store's disk is slow: 20 ms a commit")
def slow_disk(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = "store.write:sleep:ms=20"
    with_losses(run)
    run.wait()
    run.finish()


@scenario("F4", "the store's folder vanishes, or is a file")
def folder_vanishes(run):
    with_losses(run)
    run.wait_rows(2)
    store = run.directory / "store"
    if run.working():
        shutil.rmtree(store, ignore_errors=True)
        if run.random.random() < 0.5:
            try:
                store.write_text("in the way", encoding="utf-8")
            except OSError:  # the run was faster
                pass
    run.wait()
    if store.is_file():
        store.unlink()
    run.finish()


@scenario("D3", "the store's disk errs now and then (EIO)")
def disk_errs(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = f"store.write:fail:chance=0.02:seed={run.seed}"
    with_losses(run)
    run.wait()
    run.check("Input/output error" in run.log_text(), "the disk's error is not named")
    run.finish()


@scenario("D3-files", "files of the store are damaged while they are in use")
def damaged_in_use(run):
    run.environment["SPOTLIGHT_FAILPOINT"] = f"commit.posted:kill:chance=0.02:times=4:seed={run.seed}"
    run.start(RANKS)
    run.wait_rows(1)
    while run.working():
        run.pause(0, 0.3)
        for path in (run.directory / "store").glob("*.h5"):
            try:
                damage(run, path)
            except (OSError, ValueError):  # its iteration is over
                pass
    run.wait()
    run.finish()


@scenario("L1", "the wall clock jumps by up to an hour, twice a second", short=True)
def clock_jumps(run):
    run.environment["LD_PRELOAD"] = os.environ["SPOTLIGHT_CLOCK_JUMP"]
    with_losses(run)
    run.wait()
    run.finish()


@scenario("L2", "a trace whose times go back is refused, with its line")
def trace_goes_back(run):
    trace = run.folder / "trace.csv"
    trace.write_text("0,add,node1\n5000,remove,node1\n1000,add,node1\n", encoding="utf-8")
    run.start(RANKS, spot__trace=trace)
    text = run.wait(sr.USAGE)
    run.check("trace.csv:3" in text, f"the message does not name line 3: {text[-300:]}")
    run.finish(bits=False, ledger=False)


def wait_until(run, at_work):
    """10 s at most: a job that joins may find no work any more."""
    deadline = time.monotonic() + 10
    while run.working() and time.monotonic() < deadline and not at_work():
        time.sleep(0.01)


def end_with_jobs(run):
    run.wait()
    for job in run.jobs:  # a job that is cut off ends by itself, or is a hang
        try:
            job.wait(timeout=40)
        except subprocess.TimeoutExpired:
            run.violations.append("the job that was cut off has not ended 40 s after the run")
    run.finish()


def through_proxy(run, disturb):
    """A job joins through a proxy; `disturb` gets it when the job is at work."""
    run.start(3)
    run.wait_rows(1)
    address, rest = (run.directory / "join").read_text(encoding="utf-8").strip().split(" ", 1)
    proxy = Proxy(int(address.rsplit(":", 1)[1]), run.seed)
    try:
        run.join(1, where=f"tcp://127.0.0.1:{proxy.port} {rest}")
        wait_until(run, lambda: proxy.bytes >= 20000)
        disturb(proxy)
        end_with_jobs(run)
    finally:
        proxy.close()


@scenario("P1-short", "the network is cut for 3 s, and comes back")
def cut_short(run):
    def disturb(proxy):
        proxy.cut(True, True)
        time.sleep(3)
        proxy.cut(False, False)

    through_proxy(run, disturb)


@scenario("P1-long", "the network is cut for 15 s, longer than a silence may last", {"run/iterations": 100})
def cut_long(run):
    def disturb(proxy):
        proxy.cut(True, True)
        time.sleep(15)
        proxy.cut(False, False)

    through_proxy(run, disturb)


@scenario("P2", "one direction is lost; then 200 ms of delay and 125 kB/s")
def one_way(run):
    def disturb(proxy):
        up = run.random.random() < 0.5
        proxy.cut(up, not up)
        time.sleep(2)
        proxy.cut(False, False)
        proxy.delay, proxy.rate = 0.2, 125000

    through_proxy(run, disturb)


@scenario("P3", "the network is cut and stays so: a half-open connection")
def half_open(run):
    through_proxy(run, lambda proxy: proxy.cut(True, True))
