"""One run of spotlight_chaos that is attacked while it works, and what must hold afterwards.

Invariants (each that does not hold is a line in `ChaosRun.violations`):
  bits       weights and learnt history are those of the undisturbed run
  code       the exit code is the expected one, within LIMIT seconds
  leftovers  no process of the run, no name in /dev/shm, no temporary file, no half-made file in its folder
  ledger     time of killed ranks counts as lost
The environment names the program and the source as for tests/regression.
"""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import spotlight_run as sr

LIMIT = float(os.environ.get("SPOTLIGHT_CHAOS_LIMIT", "150"))  # seconds of a run; longer is a hang
START_LIMIT = 75  # seconds; a death while MPI starts keeps the other ranks of its job for 60
SHARED_MEMORY = pathlib.Path("/dev/shm")
sr.LIMIT = 900  # seconds of an undisturbed run: perhaps hundreds of iterations by one process, on a busy machine

# A run of 2 to 3 s: 12 iterations that explore, roll out, evaluate, train and save.
SETTINGS = dict(
    sr.TINY,
    **{
        "run/iterations": 12,
        "group/images": 8,
        "explore/seeds": 16,
        "explore/budget": "fixed",  # what fits before a deadline is never the same
        "sampler/steps": 6,
        "eval/steps": 6,
        "sampler/batch": 4,
        "store/commit_every": 1,
        "ranks/explorer_sp": 2,
        "ranks/adapt_sp": "false",  # else the first rank that is left alone shows that groups do not pay at this size
        "ranks/detection_time": 1.0,
    },
)
PLACE_SETTINGS = ("ranks/", "store/", "spot/")  # sections that do not change what is learnt


class Process:
    """A rank. joined: of a spot job that joined; else `rank` is its number in the run."""

    def __init__(self, pid, rank, joined):
        self.pid, self.rank, self.joined = pid, rank, joined

    def send(self, number):
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def alive(self):
        try:
            state = (pathlib.Path("/proc") / str(self.pid) / "stat").read_text(encoding="utf-8").rpartition(")")[2]
            return state.split()[0] != "Z"
        except OSError:
            return False


def gold(work, settings):
    """The folder of the undisturbed run with these settings: made once, by one process."""
    learnt = {key: value for key, value in settings.items() if not key.startswith(PLACE_SETTINGS)}
    folder = work / ("gold-" + "-".join(str(value) for value in learnt.values()).replace("/", "_"))
    if not folder.exists():
        making = folder.with_name("half-" + folder.name)
        result = sr.run([sr.INPUT, "-d", making], learnt)
        assert result.code == sr.FINISHED, result
        making.rename(folder)
    return folder


class ChaosRun:
    """Everything it makes is below `folder`, which must not exist."""

    def __init__(self, folder, seed, settings=None, log=False):
        self.folder, self.seed = folder, seed
        self.settings = settings or SETTINGS
        self.random = random.Random(seed)
        self.directory = folder / "run"
        self.temporary = folder / "tmp"
        self.fired = folder / "fired"
        self.places = folder / "places"
        for path in (self.temporary, self.fired):
            path.mkdir(parents=True)
        self.environment = dict(
            os.environ,
            SPOTLIGHT_CHAOS_RUN=str(folder),
            TMPDIR=str(self.temporary),
            OMP_WAIT_POLICY="passive",
            SPOTLIGHT_FAILPOINT_DIR=str(self.fired),
        )
        if log:
            self.environment["SPOTLIGHT_FAILPOINT_LOG"] = str(self.places)
        self.violations, self.outputs = [], []
        self.killed_at_work = False
        self.may_crash = False  # a rank by a segmentation fault
        self.killed_launchers = False
        self.process, self.result, self.jobs = None, None, []
        self.began = time.monotonic()

    # What a scenario does.

    def start(self, ranks, arguments=None, **changed):
        """arguments: instead of a new run's, as ["-r", "latest"]; changed: section__key=value."""
        settings = {key.replace("__", "/"): value for key, value in changed.items()}
        if arguments is None:
            arguments, settings = [sr.INPUT], {**self.settings, **settings}
        words = sr.command([*arguments, "-d", self.directory], settings, ranks)
        self.out = open(self.folder / f"out{len(self.outputs)}", "w+", encoding="utf-8")
        self.outputs.append(self.out)
        self.process = subprocess.Popen(
            words, cwd=sr.SOURCE, stdout=self.out, stderr=subprocess.STDOUT, start_new_session=True,
            env=self.environment,
        )  # fmt: skip

    def join(self, ranks=1, where=None, inside=(), **environment):
        """A spot job that joins; it is awaited at the end. inside: the command that starts it."""
        words = [str(sr.SOURCE / "scripts/mpirun.sh"), "-np", str(ranks)] if ranks > 1 else []
        out = open(self.folder / f"join{len(self.jobs)}", "w+", encoding="utf-8")
        job = subprocess.Popen(
            [*inside, *words, sr.BINARY, "--join", str(where or self.directory)], cwd=sr.SOURCE, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True, env={**self.environment, **environment},
        )  # fmt: skip
        self.outputs.append(out)
        self.jobs.append(job)
        return job

    def rows(self):
        return sr.rows_written(self.directory)

    def wait_rows(self, count):
        """False: the run has ended before."""
        deadline = time.monotonic() + LIMIT
        while self.rows() < count:
            if self.process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                self.violations.append(f"hangs: no row {count} within {LIMIT:.0f} s")
                return False
            time.sleep(0.005)
        return True

    def running(self):
        return self.process.poll() is None

    def working(self):
        """Far enough from the end that a loss shows in the history."""
        return self.running() and self.rows() < int(self.settings["run/iterations"]) - 2

    def pause(self, least, most):
        time.sleep(self.random.uniform(least, most))

    def ranks(self):
        """All living ranks of the run and of jobs that have joined, by number."""
        found = []
        for pid, environment in self.members():
            try:
                words = (pathlib.Path("/proc") / str(pid) / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].decode() == sr.BINARY:
                found.append(Process(pid, int(environment.get("OMPI_COMM_WORLD_RANK", 0)), b"--join" in words))
        return sorted(found, key=lambda process: (process.joined, process.rank))

    def members(self):
        """(process id, environment) of all processes that this run has started."""
        mark = f"SPOTLIGHT_CHAOS_RUN={self.folder}".encode()
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                words = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark in words:
                yield int(entry.name), dict(word.decode().split("=", 1) for word in words if b"=" in word)

    def explorers(self):
        trainers = int(self.settings.get("ranks/trainers", 1))
        return [process for process in self.ranks() if process.joined or process.rank > trainers]

    def some_explorers(self, count):
        """`count` of them in random order, or fewer: on a busy machine the run may have ended meanwhile."""
        explorers = self.explorers()
        return self.random.sample(explorers, min(count, len(explorers)))

    def trainer(self):
        return next(process for process in self.ranks() if process.rank == 1 and not process.joined)

    def coordinator(self):
        return next(process for process in self.ranks() if process.rank == 0 and not process.joined)

    def kill(self, processes, number=signal.SIGKILL):
        for process in processes:
            if number == signal.SIGKILL and not process.joined and self.working():
                self.killed_at_work = True
            process.send(number)

    def kill_session(self, job):
        """mpirun and all ranks at once: a node that is gone."""
        self.killed_launchers = True
        sr.kill_session(job.pid)

    def checkpoint(self):
        """The iteration of the newest checkpoint; 0: there is none."""
        latest = self.directory / "checkpoints/latest"
        return int(os.readlink(latest).rsplit("_", 1)[1]) if latest.is_symlink() else 0

    def log_text(self):
        path = self.directory / "spotlight.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def collect_jobs(self):
        """Forgets joined jobs that have ended."""
        self.jobs = [job for job in self.jobs if job.poll() is None]

    def end_at_border(self, ranks):
        """Asks the run to stop, and goes on for two iterations more, undisturbed; the gold run is as long."""
        self.process.send_signal(signal.SIGINT)
        self.wait(sr.STOPPED)
        rows = self.rows()
        self.environment.pop("SPOTLIGHT_FAILPOINT", None)
        self.settings = {**self.settings, "run/iterations": rows + 2}
        self.start(ranks, ["-r", "latest"], run__iterations=rows + 2)
        self.wait()

    # What must hold.

    def check(self, condition, text):
        if not condition:
            self.violations.append(text)

    def wait(self, code=sr.FINISHED):
        """The end of the run or of a part of it; what it printed."""
        try:
            actual = self.process.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            states = [f"{process.rank}{'j' if process.joined else ''}" for process in self.ranks()]
            self.violations.append(f"hangs: not ended within {LIMIT:.0f} s; ranks {' '.join(states)}")
            self.save_stacks()
            self.end_all()
            actual = self.process.wait()
        self.out.flush()
        self.out.seek(0)
        text = self.out.read()
        self.check(self.may_crash or "Segmentation fault" not in text, f"a rank has crashed; see {self.out.name}")
        self.check(actual == code, f"exit code {actual}, not {code}: {text[-800:]}")
        return text

    def finish(self, bits=True, ledger=True):
        """After the last `wait`. All checks of the head of this file."""
        for job in self.jobs:
            try:
                job.wait(timeout=START_LIMIT)
            except subprocess.TimeoutExpired:
                self.violations.append(f"a joined job has not ended {START_LIMIT} s after the run")
        deadline = time.monotonic() + 8  # mpirun.sh looks each second
        while (left := self.left_processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.check(not left, f"processes are left: {left}")
        self.end_all()
        if bits and not self.violations:
            self.check_bits()
        # What nobody removes if a whole job is killed while MPI starts: MPI's files for messages.
        shared = [path.name for path in SHARED_MEMORY.iterdir()] if PRIVATE_MEMORY else []
        shared = [name for name in shared if not (self.killed_launchers and name.startswith("sm_segment."))]
        self.check(not shared, f"/dev/shm has {sorted(shared)[:6]}")
        for path in SHARED_MEMORY.iterdir() if PRIVATE_MEMORY else ():
            path.unlink()
        # What a killed mpirun.sh cannot remove: its folder, with mpirun's.
        temporary = [str(path.relative_to(self.temporary)) for path in self.temporary.rglob("*") if path.is_file()]
        self.check(not temporary or self.killed_launchers, f"temporary files {temporary[:6]}")
        half = [path.name for path in self.directory.rglob("*.tmp")] + [
            name for name in ("join", "store") if (self.directory / name).exists()
        ]
        self.check(not half, f"left in the run's folder: {half}")
        if ledger and self.killed_at_work:
            row = sr.history(self.directory)[-1]
            self.check(row["cost_spot_lost_h"] > 0, "the ledger has no lost time")
        self.close()

    def save_stacks(self):
        """Where the ranks hang, for who looks into it; with gdb only."""
        for process in self.ranks() if shutil.which("gdb") else ():
            words = ["gdb", "-p", str(process.pid), "-batch", "-ex", "thread apply all backtrace"]
            with open(self.folder / f"stack_{process.rank}_{process.pid}", "w", encoding="utf-8") as file:
                subprocess.run(words, stdout=file, stderr=subprocess.DEVNULL, timeout=60, check=False)

    def left_processes(self):
        """Their command lines; mpirun.sh's clock, which sleeps for 5 s at most, aside."""
        commands = []
        for pid, _ in self.members():
            try:
                words = (pathlib.Path("/proc") / str(pid) / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if words[0] not in ("", "sleep"):
                commands.append(" ".join(words)[:100])
        return commands

    def check_bits(self):
        undisturbed = gold(self.folder.parent, self.settings)
        try:
            if sr.learnt(self.directory) != sr.learnt(undisturbed):
                self.violations.append("the history differs from the undisturbed run's")
            if not sr.weights(undisturbed) or sr.weights(self.directory) != sr.weights(undisturbed):
                self.violations.append("the weights differ from the undisturbed run's")
        except (OSError, ValueError) as error:
            self.violations.append(f"results cannot be read: {error}")

    def end_all(self):
        for pid, _ in self.members():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for job in [self.process, *self.jobs]:
            if job is not None:
                job.wait()

    def close(self):
        for out in self.outputs:
            out.close()
        self.seconds = time.monotonic() - self.began

    def passed(self):
        """Places of the failpoint log: [(seconds, process, place)] in order of time."""
        lines = [line.split() for line in self.places.read_text(encoding="utf-8").splitlines()]
        return sorted((int(time_ns) * 1e-9, int(pid), place) for time_ns, pid, place in lines)

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


# Whether nobody else uses /dev/shm: set by chaos.py, which gives the suite one of its own where it may.
PRIVATE_MEMORY = os.environ.get("SPOTLIGHT_CHAOS_PRIVATE") == "1"
