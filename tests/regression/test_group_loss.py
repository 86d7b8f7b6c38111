"""Losses in groups that share passes.

That of a trainer ends the run soon, with one message, and the run goes on to the same bits; that of an explorer changes
nothing.
"""

import os
import signal
import unittest

import spotlight_run as sr
from spotlight_run import FILE_SYSTEM, FINISHED, INPUT, STOPPED, TINY, RunTest, rows_written, run

SHARING = {
    "lora/rank": 4,
    "sampler/guidance": 3.0,
    "sampler/negative_prompt": "a photo of a red circle",
    "ranks/trainers": 2,
    "ranks/trainer_sp": 2,
    "ranks/explorer_sp": 2,
}
SOON = 30  # seconds


class Losses(RunTest):
    """One group of two trainers (ranks 1, 2) and two groups of two explorers (3, 4 and 5, 6)."""

    SETTINGS = {**TINY, **SHARING, "run/iterations": 6}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gold_test = RunTest()
        cls.gold_test.setUp()
        cls.addClassCleanup(cls.gold_test.doCleanups)
        cls.gold = cls.gold_test.folder / "gold"
        result = run([INPUT, "-d", cls.gold], cls.SETTINGS, 5)
        assert result.code == FINISHED, result

    def interrupt(self, directory, act, code=STOPPED, seconds=SOON):
        """Acts after two iterations; what the run then does, with the seconds since."""
        process = sr.start(sr.command([INPUT, "-d", directory], dict(self.SETTINGS, **{"run/iterations": 500}), 7))
        sr.wait_for(process, lambda: rows_written(directory) >= 2, "two iterations")
        began = sr.time.monotonic()
        act(process)
        result = sr.wait(process, began)
        self.assert_code(code, result)
        self.assertLess(result.seconds, seconds, str(result))
        self.assertEqual(sr.processes(directory), {}, "orphans")
        return result

    def test_killed_members(self):
        cases = {1: "leads the trainers", 2: "follows there"}
        for rank, what in cases.items():
            with self.subTest(rank=rank, what=what):
                directory = self.folder / str(rank)
                result = self.interrupt(
                    directory, lambda _process: os.kill(sr.processes(directory)[rank], signal.SIGKILL)
                )
                lost = [line for line in (result.out + result.err).splitlines() if "(trainer) is lost" in line]
                self.assertEqual(len(lost), 1, str(result))
                self.assertIn(f"rank {rank} (trainer)", lost[0], str(result))

    def test_killed_explorers(self):
        # A leader and a follower of different groups.
        directory = self.folder / "run"
        process = sr.start(sr.command([INPUT, "-d", directory], self.SETTINGS, 7))
        for rows, rank in ((1, 3), (2, 6)):
            sr.wait_for(process, lambda: rows_written(directory) >= rows, f"{rows} iterations")
            os.kill(sr.processes(directory)[rank], signal.SIGKILL)
        self.assert_code(FINISHED, sr.wait(process))
        self.assert_same_run(directory, self.gold)

    def test_goes_on_to_the_same_bits(self):
        directory = self.folder / "run"
        moments = ((2, 2), (4, 1))  # rows, then the rank that is killed: a follower, a leader
        process = sr.start(sr.command([INPUT, "-d", directory], self.SETTINGS, 7))
        for rows, rank in moments:
            sr.wait_for(process, lambda: rows_written(directory) >= rows, f"{rows} iterations")
            os.kill(sr.processes(directory)[rank], signal.SIGKILL)
            self.assert_code(STOPPED, sr.wait(process))
            process = sr.start(sr.command(["-r", "latest", "-d", directory], {}, 7))
        self.assert_code(FINISHED, sr.wait(process))
        self.assert_same_run(directory, self.gold)

    def test_ctrl_c(self):
        directory = self.folder / "run"
        result = self.interrupt(directory, lambda process: process.send_signal(signal.SIGINT))
        self.assertIn("-r latest -d", result.out, str(result))
        rows = rows_written(directory)
        result = run(["-r", "latest", "-d", directory], {"run/iterations": max(6, rows + 1)}, 3)
        self.assert_code(FINISHED, result)
        self.assertEqual(sr.learnt(directory)[:rows][:5], sr.learnt(self.gold)[:rows][:5])

    def test_leader_that_cannot_score(self):
        # Only leaders score: the others of the group wait for their next call meanwhile.
        judge = self.folder / "judge.sh"
        judge.write_text("#!/bin/sh\necho 'error: the judge has no idea'\n", encoding="utf-8")
        judge.chmod(0o755)
        settings = dict(self.SETTINGS, **{"reward/terms": "command:1.0", "reward/command": judge})
        result = run([INPUT, "-d", self.folder / "run"], settings, 5)
        self.assert_code(FILE_SYSTEM, result)
        self.assertLess(result.seconds, SOON, str(result))
        told = [line for line in (result.out + result.err).splitlines() if "the judge has no idea" in line]
        self.assertEqual(len(told), 1, str(result))
        self.assertEqual(sr.processes(self.folder / "run"), {}, "orphans")

    def test_leader_that_cannot_write(self):
        directory = self.folder / "run"

        def block(_process):
            (directory / "checkpoints").rename(self.folder / "moved")
            (directory / "checkpoints").write_text("in the way", encoding="utf-8")

        result = self.interrupt(directory, block, code=FILE_SYSTEM)
        # Trainer or coordinator, whoever writes first; perhaps between the two lines above.
        told = [line for line in (result.out + result.err).splitlines() if f"{directory}/checkpoints" in line]
        self.assertEqual(len(told), 1, str(result))


if __name__ == "__main__":
    unittest.main()
