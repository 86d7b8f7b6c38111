"""A run that explores as much as time allows can be repeated bit for bit from what it recorded."""

import os
import signal
import unittest

import spotlight_run as sr
from spotlight_run import FINISHED, STOPPED, RunTest, learnt, run, train, weights

DEADLINE = {"explore__budget": "deadline", "explore__grace": 0.0, "explore__seeds": 16, "run__iterations": 6}
PLANNED = {**DEADLINE, "sampler__steps": 6, "eval__steps": 6}
ALWAYS_THE_SAME = {**DEADLINE, "explore__planner": "fixed"}
# What depends on how long things took, and the decisions that came of it.
TIMED = ("explore_budget_s", "explore_seeds", "explore_steps")


def without_times(directory):
    return [{name: value for name, value in row.items() if name not in TIMED} for row in learnt(directory)]


class Replay(RunTest):
    def assert_replayed(self, directory, gold):
        self.assertEqual(without_times(directory), without_times(gold))
        self.assertTrue(weights(gold))
        self.assertTrue(weights(directory) == weights(gold), "other weights")

    def record(self, settings):
        gold = self.folder / "gold"
        self.assert_code(FINISHED, train(gold, ranks=4, **settings))
        return gold

    def test_any_number_of_ranks_gives_the_bits_of_a_run_against_time(self):
        for name, settings in (("planned", PLANNED), ("always", ALWAYS_THE_SAME)):
            with self.subTest(name):
                gold = self.folder / name
                self.assert_code(FINISHED, train(gold, ranks=4, **settings))
                for ranks in (0, 2, 5):
                    directory = self.folder / f"{name}-{ranks}"
                    result = run(["--replay", gold / "run.h5", "-d", directory], ranks=ranks)
                    self.assert_code(FINISHED, result)
                    self.assert_replayed(directory, gold)
                more = run(["-r", "latest", "-d", directory, "run/iterations=7"])
                self.assert_refused(more, "holds 6", "run/iterations=6")
                # What a replay records can be replayed, too.
                twice = self.folder / f"{name}-twice"
                result = run(["--replay", self.folder / f"{name}-0/run.h5", "-d", twice])
                self.assert_code(FINISHED, result)
                self.assert_replayed(twice, gold)

    def test_a_replay_that_is_stopped_goes_on_as_one(self):
        gold = self.record(PLANNED)
        directory = self.folder / "again"
        process = sr.start(sr.command(["--replay", gold / "run.h5", "-d", directory], ranks=4))
        sr.wait_for(process, lambda: sr.rows_written(directory) >= 1, "the first iteration")
        for pid in sr.processes(directory).values():
            os.kill(pid, signal.SIGTERM)
        if sr.wait(process).code == STOPPED:
            self.assert_code(FINISHED, run(["-r", "latest", "-d", directory], ranks=2))
        self.assert_replayed(directory, gold)

    def test_a_run_that_was_resumed_can_be_replayed(self):
        gold = self.folder / "gold"
        settings = {key.replace("__", "/"): value for key, value in {**sr.TINY, **PLANNED}.items()}
        process = sr.start(sr.command([sr.INPUT, "-d", gold], settings, 4))
        sr.wait_for(process, lambda: sr.rows_written(gold) >= 2, "two iterations")
        sr.kill_session(process.pid)
        process.wait()
        self.assert_code(FINISHED, run(["-r", "latest", "-d", gold], ranks=4))
        directory = self.folder / "again"
        self.assert_code(FINISHED, run(["--replay", gold / "run.h5", "-d", directory]))
        self.assert_replayed(directory, gold)

    def test_mistakes_are_told_before_any_work(self):
        gold = self.record(PLANNED)
        file = gold / "run.h5"
        new = self.folder / "new"
        self.assert_refused(run(["--replay", gold / "rum.h5", "-d", new]), "rum.h5", "run.h5")
        self.assert_refused(run(["--replay", file, "-d", gold]), "holds a run already")
        self.assert_refused(run(["--replay", file, "-d", new, "train/lr=1"]), "train/lr (was", "must keep")
        self.assert_refused(run(["--replay", file, "-d", new, "run/iterations=7"]), "holds 6", "run/iterations=6")
        as_setting = [gold / "input.resolved.ini", f"explore/replay={file}", "-d", new]
        self.assert_refused(run([*as_setting, "train/lr=1"]), "train/lr (was", "must keep")
        self.assert_refused(run(["--replay", sr.INPUT, "-d", new]), "geneval.ini", code=sr.FILE_SYSTEM)
        self.assertFalse(new.exists())


if __name__ == "__main__":
    unittest.main()
