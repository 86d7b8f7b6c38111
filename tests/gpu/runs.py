"""Whole runs of the tiny model on a device: with several processes on one GPU, killed and resumed, beside the CPU.

    runs.py BACK_END            cuda or kokkos, for device/backend

Uses tests/regression/spotlight_run.py and its environment variables. Prints a JSON line {"runs": {name: {"passed": b,
"seconds": s, "why": "..."}}} when a run begins and when it ends, so that the last one tells all also of who is stopped:
what has begun and not ended has not passed. Exit code 0: all passed, 1: some did not.
"""

import json
import os
import pathlib
import signal
import sys
import time
import traceback
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "regression"))
import spotlight_run as sr  # noqa: E402

ADAPTER = {
    "run/iterations": 2,
    "lora/rank": 4,
    "lora/alpha": 8,
    "sampler/guidance": 3.0,
    "sampler/negative_prompt": "a photo of a red circle",
    "train/grad_norm": 0,
}
SHARED = {"ranks/trainers": 2, "ranks/trainer_sp": 2, "ranks/explorer_sp": 2}  # 3 ranks, and 2 for each explorer
NORM = "optim_grad_norm"  # its sum has another order on another number of trainers


class Runs(sr.RunTest):
    back_end = "kokkos"

    def train(self, name, ranks, settings, back_end=None):
        chosen = {**sr.TINY, "device/backend": back_end or self.back_end, **settings}
        result = sr.run([sr.INPUT, "-d", self.folder / name], chosen, ranks)
        self.assert_code(sr.FINISHED, result)
        where = "GPU" if (back_end or self.back_end) == "cuda" else "CPU"
        if where == "GPU":
            self.assertIn("computes on GPU", result.out, "it ran elsewhere")
        return result

    def test_groups_of_two_have_the_bits_of_one_process(self):
        self.train("one", 0, ADAPTER)
        result = self.train("groups", 5, {**ADAPTER, **SHARED})
        self.assertIn("share a pass", result.out)
        ours, theirs = sr.learnt(self.folder / "groups"), sr.learnt(self.folder / "one")
        for row, other in zip(ours, theirs):
            if NORM in row:
                self.assertAlmostEqual(row.pop(NORM), other[NORM], delta=1e-5 * abs(other.pop(NORM)))
        self.assertEqual(ours, theirs)
        self.assertEqual(sr.weights(self.folder / "groups"), sr.weights(self.folder / "one"))

    def test_a_killed_run_goes_on_to_the_same_bits(self):
        settings = {"run/iterations": 4}
        self.train("gold", 0, settings)
        directory = self.folder / "killed"
        chosen = {**sr.TINY, "device/backend": self.back_end, **settings}
        process = sr.start(sr.command([sr.INPUT, "-d", directory], chosen))
        sr.wait_for(process, lambda: (directory / "checkpoints/latest").exists(), "the first checkpoint")
        os.kill(process.pid, signal.SIGKILL)
        self.assertEqual(sr.wait(process).code, -signal.SIGKILL, "it had finished already")
        self.assertLess(sr.rows_written(directory), 4 + 1)
        self.assert_code(sr.FINISHED, sr.run(["-r", "latest", "-d", directory]))
        self.assert_same_run(directory, self.folder / "gold")

    def test_several_processes_have_the_bits_of_one(self):
        self.train("one", 0, {"run/iterations": 2})
        self.train("four", 4, {"run/iterations": 2})
        self.assert_same_run(self.folder / "four", self.folder / "one")

    def test_the_cpu_learns_the_same(self):
        """Last bits differ, and a reward near a threshold may fall to its other side; not more."""
        self.train("device", 0, {"run/iterations": 1})
        self.train("cpu", 0, {"run/iterations": 1}, back_end="kokkos")
        device, cpu = sr.learnt(self.folder / "device")[0], sr.learnt(self.folder / "cpu")[0]
        self.assertEqual(device["policy_ratio_first_max_dev"], 0.0)
        self.assertAlmostEqual(device["reward_mean"], cpu["reward_mean"], delta=0.1)


class Timed(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.rows = {}

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()
        self.rows[self.name_of(test)] = {"passed": False, "seconds": 0.0, "why": "it was stopped"}
        self.show()

    def stopTest(self, test):
        super().stopTest(test)
        self.rows[self.name_of(test)]["seconds"] = round(time.monotonic() - self.began, 2)
        self.show()

    def show(self):
        print(json.dumps({"runs": self.rows}), flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.rows[self.name_of(test)].update(passed=True, why="")

    def blame(self, test, error):
        text = "".join(traceback.format_exception(*error))
        self.rows[self.name_of(test)].update(passed=False, why=text[-3000:])

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.blame(test, error)

    def addError(self, test, error):
        super().addError(test, error)
        self.blame(test, error)

    @staticmethod
    def name_of(test):
        return test.id().rsplit(".test_", 1)[-1].replace("_", " ")


def main(back_end):
    Runs.back_end = back_end
    result = Timed()
    unittest.defaultTestLoader.loadTestsFromTestCase(Runs).run(result)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
