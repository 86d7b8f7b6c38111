"""Checks the CUDA back end on the GPU of this machine: scripts/gpu_check.sh, which has the options and their meaning.

Writes gpu_check.json and gpu_check.md into the output folder after every stage, so that what is known is there when it
is stopped. Exit code: 0 all passed (or was skipped for a reason that is told), 1 a stage failed or it was stopped, 2
nothing to run on.
"""

import argparse
import ctypes
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import report
import stages
from processes import Processes


class Stopped(BaseException):
    """By a signal."""


def parse(arguments):
    parser = argparse.ArgumentParser(prog="gpu_check.sh", description="Checks the CUDA back end on this machine's GPU.")
    parser.add_argument("-b", "--build", type=pathlib.Path, required=True, help="build folder")
    parser.add_argument("-o", "--output", type=pathlib.Path, help="folder for the reports (default run/gpu_check-TIME)")
    parser.add_argument("--cpu", action="store_true", help="rehearsal: the CPU in place of the GPU, everything small")
    parser.add_argument("--stages", default=",".join(stages.STAGES), help="only these: NAME[,NAME...]; %(default)s")
    parser.add_argument("--seconds", type=float, default=470, help="for everything (default %(default)s)")
    parser.add_argument("--layers", type=int, default=60, help="of the transformer, at most (default %(default)s)")
    parser.add_argument("--peer-layers", type=int, default=20, help="beside diffusers (default %(default)s)")
    parser.add_argument("--python", default="python3", help="a Python with PyTorch and diffusers (default %(default)s)")
    options = parser.parse_args(arguments)
    options.stages = options.stages.split(",")
    unknown = [name for name in options.stages if name not in stages.STAGES]
    if unknown:
        parser.error(f"no stage {', '.join(unknown)}; there are {', '.join(stages.STAGES)}")
    return options


def nothing_to_run_on(options, check):
    """Why, or None."""
    missing = [name for name in stages.PROGRAMS if not (options.build / name).exists()]
    if missing:
        return (f"{options.build} is no complete build: {', '.join(missing)} not there; without -b "
                "scripts/gpu_check.sh builds it")
    if options.cpu:
        return None
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "there is no NVIDIA driver (libcuda.so.1) on this machine; --cpu rehearses without a GPU"
    missing = [name for name in stages.PLUG_INS if not (options.build / name).exists()]
    if missing:
        return f"{options.build} was built without CUDA: {', '.join(missing)} not there (-DSPOTLIGHT_CUDA=ON)"
    outcome = check.run(["ldd", options.build / "libspotlight_cuda.so"], 20)
    absent = [line.split()[0] for line in outcome.out.splitlines() if "not found" in line]
    if absent:
        return f"libraries of CUDA are missing here: {', '.join(absent)}"
    outcome = check.run([options.build / "tests/kernels/kernels_test", "--back_end=cuda", "--gtest_filter=-*"], 60)
    if outcome.code != 0:
        return outcome.err.strip() or outcome.tail()
    return None


def machine(options):
    """What was measured on."""
    facts = {"time": datetime.datetime.now().astimezone().isoformat(timespec="seconds"), "cores": os.cpu_count()}
    if not options.cpu and shutil.which("nvidia-smi"):
        fields = "name,driver_version,memory.total,power.limit,clocks.max.sm,clocks.max.mem"
        answer = subprocess.run(["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True,
                                text=True, timeout=20)
        facts["gpu"] = answer.stdout.strip()
    described = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True,
                               cwd=stages.SOURCE)
    facts["source"] = described.stdout.strip()
    return facts


class MemoryWatch(threading.Thread):
    """The most memory of the GPU that nvidia-smi saw in use, of all processes, MiB; None where it cannot tell."""

    def __init__(self):
        super().__init__(daemon=True)
        self.most, self.ending = None, threading.Event()

    def run(self):
        while not self.ending.wait(1.0):
            try:
                answer = subprocess.run(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                                        capture_output=True, text=True, timeout=10)
                used = max(int(line) for line in answer.stdout.split())
            except (OSError, ValueError, subprocess.TimeoutExpired):
                return
            self.most = max(self.most or 0, used)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.join(timeout=15)


def play(name, check, seconds):
    function, limit, _ = stages.STAGES[name]
    began = time.monotonic()
    with MemoryWatch() as watch:
        try:
            result = function(check, min(limit * (4 if check.cpu else 1), seconds))
        except Exception as error:  # a stage that breaks must not take the others with it
            result = stages.Result(stages.FAILED, f"the check itself: {type(error).__name__}: {error}")
    row = {"status": result.status, "seconds": round(time.monotonic() - began, 1), "summary": result.summary,
           "memory_mib": watch.most, "numbers": result.numbers}
    if result.status != stages.PASSED:
        row["log"] = result.log
    return row


def write(folder, facts):
    for name, text in (("gpu_check.json", json.dumps(facts, indent=1)), ("gpu_check.md", report.markdown(facts))):
        aside = folder / (name + ".tmp")
        aside.write_text(text + "\n", encoding="utf-8")
        aside.rename(folder / name)


def main(arguments):
    options = parse(arguments)
    options.build = options.build.resolve()
    processes = Processes()
    packed = [str(options.build / name) for name in ("lib", "mpi/lib", "mpi/lib/openmpi")]
    check = stages.Check(options.build, processes, options.cpu, options.layers, options.peer_layers, options.python,
                         ":".join(packed) if (options.build / "lib").is_dir() else "")
    began = time.monotonic()

    def stop(number, _frame):
        raise Stopped(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        reason = nothing_to_run_on(options, check)
        if reason:
            print(f"gpu_check.sh: {reason}", file=sys.stderr)
            return 2
        folder = options.output or stages.SOURCE / "run" / time.strftime("gpu_check-%Y%m%d-%H%M%S")
        folder.mkdir(parents=True, exist_ok=True)
        facts = {"rehearsal": options.cpu, "machine": machine(options), "stages": {}}
        for name in options.stages:
            left = options.seconds - (time.monotonic() - began)
            if left < 5:
                facts["stages"][name] = {"status": stages.SKIPPED, "seconds": 0, "summary": "no time was left",
                                         "memory_mib": None, "numbers": {}}
            else:
                print(f"{name}: {stages.STAGES[name][2]} ...", flush=True)
                facts["stages"][name] = play(name, check, left)
            row = facts["stages"][name]
            print(f"{name}: {row['status']} after {row['seconds']} s: {row['summary']}", flush=True)
            facts["seconds"] = round(time.monotonic() - began, 1)
            write(folder, facts)
        print(f"\n{report.markdown(facts)}\n\nwritten to {folder}/gpu_check.md and gpu_check.json")
        return 1 if any(row["status"] == stages.FAILED for row in facts["stages"].values()) else 0
    except Stopped as signal_number:
        print(f"gpu_check.sh: stopped by signal {signal_number}", file=sys.stderr)
        return 1
    finally:
        processes.kill_all()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
