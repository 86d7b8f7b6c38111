"""Runs the program, and reads what it leaves: shared by the tests of this folder.

The environment names the program (SPOTLIGHT_BINARY) and the repository (SPOTLIGHT_SOURCE).
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BINARY = os.environ["SPOTLIGHT_BINARY"]
SOURCE = pathlib.Path(os.environ["SPOTLIGHT_SOURCE"])
INPUT = SOURCE / "inputs/geneval.ini"
LIMIT = 120  # seconds; a run that takes longer hangs

FINISHED, USAGE, FILE_SYSTEM, STOPPED = 0, 2, 74, 75

# A run of about a second.
TINY = {
    "run/iterations": 4,
    "group/prompts": 2,
    "group/images": 4,
    "explore/seeds": 8,
    "explore/budget": "fixed",
    "eval/seeds": 1,
    "eval/steps": 4,
    "eval/every": 2,
    "sampler/steps": 4,
    "sampler/window_size": 2,
    "train/updates": 2,
    "checkpoint/every": 1,
    "device/threads": 1,
}


class Result:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def __str__(self):
        return f"exit code {self.code} after {self.seconds:.1f} s\n{self.out[-3000:]}\n{self.err[-3000:]}"


def command(arguments, settings=None, ranks=0):
    """ranks: 0 for one process without mpirun."""
    words = [str(SOURCE / "scripts/mpirun.sh"), "-np", str(ranks)] if ranks else []
    words += [BINARY] + [str(argument) for argument in arguments]
    return words + [f"{key}={value}" for key, value in (settings or {}).items()]


def start(words, **options):
    return subprocess.Popen(
        words, cwd=SOURCE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **options
    )


def kill_session(session):
    """mpirun and the ranks have process groups of their own."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == session:
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue  # has ended


def wait(process, began=None):
    began = began or time.monotonic()
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        kill_session(process.pid)
        out, err = process.communicate()
        raise AssertionError(f"hangs: {process.args}\n{out[-3000:]}\n{err[-3000:]}")
    return Result(process.returncode, out, err, time.monotonic() - began)


def run(arguments, settings=None, ranks=0, **options):
    return wait(start(command(arguments, settings, ranks), **options))


def train(directory, ranks=0, **changed):
    """A tiny run into `directory`; changed: section__key=value."""
    settings = dict(TINY)
    settings.update({key.replace("__", "/"): value for key, value in changed.items()})
    return run([INPUT, "-d", directory], settings, ranks)


def weights(directory):
    """The bytes of all files of trained weights, by path."""
    final = pathlib.Path(directory) / "final"
    return {str(path.relative_to(final)): path.read_bytes() for path in sorted(final.rglob("*.safetensors"))}


def history(directory):
    with open(pathlib.Path(directory) / "history.jsonl", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


LEARNT = ("reward_", "group_", "explore_", "policy_", "optim_", "eval_")  # columns that do not depend on time or place


def learnt(directory):
    """The history without times and costs."""
    return [
        {name: value for name, value in row.items() if name == "step" or name.startswith(LEARNT)}
        for row in history(directory)
    ]


def wait_for(process, condition, what, seconds=60):
    """Fails, with what the run has printed and where it stands, if it ends before or takes longer; then it is killed."""
    deadline = time.monotonic() + seconds
    while not condition():
        ended = process.poll() is not None
        if (ended and not condition()) or time.monotonic() > deadline:
            stacks = "" if ended else session_stacks(process.pid)
            kill_session(process.pid)
            out, err = process.communicate()
            why = f"the run has ended with code {process.returncode}" if ended else f"not within {seconds} s"
            raise AssertionError(f"{what}: {why}\n{out[-3000:]}\n{err[-3000:]}\n{stacks}")
        time.sleep(0.01)


def session_stacks(session):
    """Where the ranks of mpirun.sh's session stand; with gdb only."""
    stacks = []
    for entry in pathlib.Path("/proc").iterdir() if shutil.which("gdb") else ():
        try:
            ours = entry.name.isdigit() and os.getsid(int(entry.name)) == session
            if not ours or not os.readlink(entry / "exe").startswith(str(pathlib.Path(BINARY).parent)):
                continue
        except OSError:
            continue  # has ended
        words = ["gdb", "-p", entry.name, "-batch", "-ex", "thread apply all backtrace 25"]
        stacks.append(subprocess.run(words, capture_output=True, text=True, timeout=60, check=False).stdout)
    return "\n".join(stacks)


def rows_written(directory):
    path = pathlib.Path(directory) / "history.jsonl"
    return path.read_text(encoding="utf-8").count("\n") if path.exists() else 0


def processes(directory):
    """{rank: process id} of the ranks that run into `directory`; without mpirun the rank is 0."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if words[0].decode() != BINARY or str(directory).encode() not in words:
                continue
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        ranks = [int(v.split(b"=")[1]) for v in environment if v.startswith(b"OMPI_COMM_WORLD_RANK=")]
        found[ranks[0] if ranks else 0] = int(entry.name)
    return found


class RunTest(unittest.TestCase):
    """A test with a folder of its own, `self.folder`, and checks that show the run's output when they fail."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="spotlight-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def assert_code(self, code, result):
        self.assertEqual(result.code, code, str(result))

    def assert_refused(self, result, *texts, code=USAGE):
        """One message with all of `texts`, and nothing before it."""
        self.assert_code(code, result)
        messages = [line for line in result.err.splitlines() if line.startswith("spotlight: ")]
        self.assertEqual(len(messages), 1, str(result))
        for text in texts:
            self.assertIn(text, result.err, str(result))
        self.assertNotIn("iteration 1/", result.out, str(result))

    def assert_same_run(self, directory, gold):
        self.assertEqual(learnt(directory), learnt(gold))
        self.assertTrue(weights(gold))
        self.assertEqual(weights(directory).keys(), weights(gold).keys())
        for name, data in weights(gold).items():
            self.assertTrue(weights(directory)[name] == data, f"{name} differs in {directory}")
