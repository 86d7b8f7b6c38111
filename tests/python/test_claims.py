"""scripts/claims: what it runs, refuses and stops, with a fake program; and the statistics of its table."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import SOURCE

sys.path.insert(0, str(SOURCE / "scripts/claims"))
import intervals  # noqa: E402
import report  # noqa: E402
from run_results import RunResult  # noqa: E402

FAKE = pathlib.Path(__file__).with_name("fake_spotlight.py")
SMALL = ["--arms", "spotlight,reserved", "--seeds", "1", "--iterations", "30", "--tune-seeds", "1", "--tune-iterations",
         "20", "--rates", "1e-4,3e-4"]  # fmt: skip


class Claims:
    def __init__(self, folder):
        self.folder, self.out, self.started_file = folder, folder / "out", folder / "started"
        self.program = folder / "spotlight"
        self.program.write_text(f"#!{sys.executable} -B\n" + FAKE.read_text(encoding="utf-8"), encoding="utf-8")
        self.program.chmod(0o755)

    def start(self, *arguments, **more):
        environment = {**os.environ, "SPOTLIGHT_BINARY": str(self.program), "SPOTLIGHT_MPIRUN": str(self.program),
                       "FAKE_STARTED": str(self.started_file), **more}  # fmt: skip
        command = [sys.executable, "-B", str(SOURCE / "scripts/claims/claims.py"), "-o", str(self.out), *arguments]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def call(self, *arguments):
        process = self.start(*arguments)
        out, err = process.communicate(timeout=100)
        return process.returncode, out + err

    def started(self):
        return self.started_file.read_text(encoding="utf-8").splitlines() if self.started_file.exists() else []


@pytest.fixture
def claims(tmp_path):
    return Claims(tmp_path)


def test_runs_what_is_missing_and_refuses_what_is_not_alike(claims):
    code, text = claims.call(*SMALL)
    assert code == 0, text
    assert len(claims.started()) == 2 * (2 + 1), "two rates, then a run seed, of two arms"
    assert "learning rate 0.0003" in text, text
    assert "| reserved | 0.0003 | 1 | 1 |" in (claims.out / "claims.md").read_text(encoding="utf-8")
    assert claims.call(*SMALL)[0] == 0
    assert len(claims.started()) == 6, "all of them are there"
    code, text = claims.call(*SMALL, "--ranks", "5", "train/updates=2")
    assert code == 2 and "differ in: ranks, settings" in text and "another folder" in text, text
    with open(claims.program, "a", encoding="utf-8") as file:
        file.write("# another program\n")
    code, text = claims.call(*SMALL)
    assert code == 2 and "program" in text, text
    assert claims.call(*SMALL, "--table")[0] == 0, "which runs nothing"
    assert len(claims.started()) == 6


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_when_it_is_stopped_so_is_the_run(claims, number):
    process = claims.start(*SMALL, FAKE_HANGS="1")
    deadline = time.monotonic() + 60
    while not claims.started():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    run = int(claims.started()[0].split()[0])
    process.send_signal(number)
    text = "".join(process.communicate(timeout=60))
    assert process.returncode == 75, text
    assert "the same call goes on" in text
    with pytest.raises(ProcessLookupError):
        os.kill(run, 0)
    assert len(claims.started()) == 1


def result(scores, wall, program="abc", **columns):
    steps = 10 * np.arange(len(scores))
    every = {"time_step_s": 1.0, "train_alone_s": 0.5, "train_pair_ms": 1.0, **columns}
    return RunResult(steps, np.array(scores), np.linspace(0, wall, len(scores)), 0.1 * steps, every, program)


def cells(text, start):
    return [cell.strip() for cell in next(line for line in text.splitlines() if line.startswith(start)).split("|")[1:-1]]


def test_intervals_are_students():
    # Deviation 3.0957, t(3) = 3.182; of the logarithms ln 1.5, t(2) = 4.303.
    assert intervals.of_mean([1, 2, 4, 8]) == pytest.approx((3.75, -1.175, 8.675), rel=1e-3)
    assert intervals.of_ratio([(2, 1), (6, 2), (9, 2)]) == pytest.approx((3.0, 1.0956, 8.2147), rel=1e-3)
    assert intervals.text(intervals.of_mean([2.0]), 1) == "2.0", "one run has no interval"
    assert intervals.quantile(30) > intervals.quantile(31) > 1.96
    draws = np.random.default_rng(3).lognormal(size=(2000, 8, 1)) * [1, 1]
    draws[:, :, 1] = np.random.default_rng(4).lognormal(size=(2000, 8))
    held = [low <= 1 <= high for _, low, high in map(intervals.of_ratio, draws)]
    assert 0.935 < np.mean(held) < 0.965


def test_a_run_without_three_evaluations_has_not_reached_its_target():
    assert result([0.9, 0.9], 10).reached(0.1) is None
    assert result([0.1, 0.6, 0.6, 0.6], 10).reached(0.55) == 3


def test_censored_runs_give_bounds_or_nothing():
    good, slow, never = [0.1, 0.6, 0.6, 0.6], [0.1, 0.1, 0.6, 0.6, 0.6], [0.1] * 5
    arms = {"spotlight": {0: result(good, 30), 1: result(good, 30)},
            "critical": {0: result(slow, 80), 1: result(slow, 80)},
            "reserved": {0: result(slow, 80), 1: result(never, 160), 2: result(slow, 90)}}  # fmt: skip
    text = report.table(arms, dict.fromkeys(arms, 3e-4), 0.55)
    assert cells(text, "| critical")[-3:-1] == ["2", f"{80 / 30:.2f} ({80 / 30:.2f} to {80 / 30:.2f})"]
    reserved = cells(text, "| reserved")
    assert reserved[2:4] == ["3", "2"] and reserved[5] == ">= 110"
    assert reserved[-3:-1] == ["2", f">= {np.sqrt(80 * 160) / 30:.2f}"]
    arms["spotlight"][1] = result(never, 30)
    text = report.table(arms, dict.fromkeys(arms, 3e-4), 0.55)
    assert cells(text, "| critical")[-2:] == ["-", "-"]
    assert cells(text, "| spotlight")[5] == ">= 30"


def test_what_an_arm_has_not_is_not_nought_and_times_are_compared_in_pairs():
    scores = [0.1, 0.6, 0.6, 0.6]
    arms = {"spotlight": {s: result(scores, 30, time_step_s=1.1 * (s + 1), wait=0.004) for s in range(3)},
            "rollouts_only": {s: result(scores, 30, time_step_s=1.0 * (s + 1)) for s in range(3)}}  # fmt: skip
    text = report.table(arms, dict.fromkeys(arms, 3e-4), 0.55)
    titles, means = text[text.index("| arm | s / iteration |") :].split("Time against")[0], text.split("Time against")[1]
    assert cells(titles, "| spotlight")[3] == "0.40" and cells(titles, "| rollouts_only")[3] == "-"
    assert cells(means, "| spotlight")[1:3] == ["3", "1.100 (1.100 to 1.100)"]


def test_runs_of_several_programs_are_told(capsys):
    scores = [0.1, 0.6, 0.6, 0.6]
    arms = {"spotlight": {0: result(scores, 30)}, "reserved": {0: result(scores, 30, program="def")}}
    text = report.table(arms, dict.fromkeys(arms, 3e-4), 0.55)
    assert text.startswith("Warning") and "def: reserved 0" in text
    assert "def" in capsys.readouterr().err
    arms["reserved"] = {0: result(scores, 30)}
    assert "Warning" not in report.table(arms, dict.fromkeys(arms, 3e-4), 0.55)
