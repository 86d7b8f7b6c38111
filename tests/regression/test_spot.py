"""Spot ranks that die, stop, leave and join change nothing but the time: the run ends with code 0 and the same bits.

A short choice; the matrix is scripts/chaos.sh.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import unittest

import spotlight_run as sr
from spotlight_run import BINARY, FINISHED, INPUT, RunTest, TINY, USAGE, rows_written

SETTINGS = {
    **TINY,
    "run/iterations": 12,
    "group/images": 8,
    "explore/seeds": 16,
    "sampler/batch": 4,
    "ranks/explorer_sp": 2,
    "ranks/adapt_sp": "false",
    "ranks/detection_time": 1.0,
    "store/commit_every": 1,
}
EXPLORERS = (2, 3, 4, 5)


class Spot(RunTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gold_test = RunTest()
        cls.gold_test.setUp()
        cls.addClassCleanup(cls.gold_test.doCleanups)
        cls.gold = cls.gold_test.folder / "gold"
        result = sr.run([INPUT, "-d", cls.gold], SETTINGS)
        assert result.code == FINISHED, result

    def setUp(self):
        super().setUp()
        self.directory = self.folder / "run"

    def start(self, ranks=6, **changed):
        settings = {**SETTINGS, **{key.replace("__", "/"): value for key, value in changed.items()}}
        process = sr.start(sr.command([INPUT, "-d", self.directory], settings, ranks))
        sr.wait_for(process, lambda: rows_written(self.directory) >= 1, "an iteration")
        return process

    def finish(self, process):
        result = sr.wait(process)
        self.assert_code(FINISHED, result)
        self.assert_same_run(self.directory, self.gold)
        self.assertEqual(sr.processes(self.directory), {}, "orphans")
        return result

    def signal(self, rank, number):
        os.kill(sr.processes(self.directory)[rank], number)

    def test_killed_one_after_the_other(self):
        process = self.start()
        for rows, rank in zip((1, 2, 4, 5), (4, 2, 5, 3)):
            sr.wait_for(process, lambda rows=rows: rows_written(self.directory) >= rows, f"{rows} iterations")
            self.signal(rank, signal.SIGKILL)
        self.finish(process)
        log = (self.directory / "spotlight.log").read_text(encoding="utf-8")
        for rank in EXPLORERS:
            self.assertIn(f"spot rank {rank} is lost", log)
        self.assertGreater(sr.history(self.directory)[-1]["cost_spot_lost_h"], 0)

    def test_all_killed_at_once(self):
        process = self.start()
        for rank in EXPLORERS:
            self.signal(rank, signal.SIGKILL)
        self.finish(process)

    def test_notice(self):
        # A burst buffer that another run uses, too.
        shared = self.folder / "shared"
        shared.mkdir()
        (shared / "iteration_000000_00.h5").write_bytes(b"of another run")
        process = self.start(store__path=shared)
        self.signal(3, signal.SIGTERM)
        self.finish(process)
        log = (self.directory / "logs/rank_0003.log").read_text(encoding="utf-8")
        self.assertIn("left in order, as its notice asked", log)
        self.assertIn("spot rank 3 has left in order", (self.directory / "spotlight.log").read_text(encoding="utf-8"))
        self.assertEqual([path.name for path in shared.iterdir()], ["iteration_000000_00.h5"])

    def test_stopped(self):
        process = self.start(run__iterations=12)
        stopped = sr.processes(self.directory)[4]
        os.kill(stopped, signal.SIGSTOP)
        self.finish(process)
        self.assertFalse(pathlib.Path(f"/proc/{stopped}").exists(), "the stopped rank is still there")

    def test_joined(self):
        # Nobody explores at the start; a job of two ranks and one of a single process come.
        process = self.start(2)
        address = (self.directory / "join").read_text(encoding="utf-8")
        self.assertTrue(address.startswith(f"tcp://{socket.gethostname()}:"), "no address for other machines")
        words = [BINARY, "--join", str(self.directory)]
        launch = [str(sr.SOURCE / "scripts/mpirun.sh"), "-np", "2"]
        jobs = [subprocess.Popen(command, cwd=sr.SOURCE, start_new_session=True) for command in (words, launch + words)]
        result = self.finish(process)
        for job in jobs:
            self.assertEqual(job.wait(timeout=30), FINISHED)
        self.assertIn("a spot job of 2 rank(s)", result.out)
        self.assertIn("a spot job of 1 rank(s)", result.out)

    def test_joined_with_other_prompts(self):
        process = self.start(2)
        elsewhere = self.folder / "elsewhere"
        for part in ("models/tiny-shapes", "prompts"):
            shutil.copytree(sr.SOURCE / "inputs" / part, elsewhere / "inputs" / part)
        prompts = elsewhere / "inputs/prompts/shapes_train.jsonl"
        lines = prompts.read_text(encoding="utf-8").splitlines(keepends=True)
        prompts.write_text("".join(lines[1:]), encoding="utf-8")
        words = [BINARY, "--join", str(self.directory)]
        job = subprocess.run(words, cwd=elsewhere, capture_output=True, text=True, timeout=60, check=False)
        self.finish(process)
        self.assertEqual(job.returncode, USAGE, job)
        self.assertIn("not those of the run: prompts/train (inputs/prompts/shapes_train.jsonl).", job.stderr)

    def test_nobody_answers(self):
        line = f"tcp://no..name:5000 {'k' * 40} {'0' * 16}"
        result = sr.run(["--join", line])
        self.assert_code(USAGE, result)
        for part in ("nobody listens at tcp://no..name:5000: its name is not known", "ranks/host=NAME_OR_ADDRESS"):
            self.assertIn(part, result.err)


if __name__ == "__main__":
    unittest.main()
