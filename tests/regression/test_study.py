"""`spotlight study ranks`: its table for a tiny run, and what it refuses."""

import re
import shutil
import unittest

import spotlight_run as sr
from spotlight_run import FILE_SYSTEM, FINISHED, INPUT, RunTest, run, train

SMALL = {"study/prompts": 12, "study/seeds": 12}
N = r"(-?\d\.\d+)"  # name, steps, rho and its interval, tau-b
ROW = re.compile(rf"(current|other noise|\d+ older) +(\d+/\d+) +{N} \[{N}, {N}\] +{N} \[")
FILE = "study_ranks.h5"


class Study(RunTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shared = RunTest()
        cls.shared.setUp()
        cls.addClassCleanup(cls.shared.doCleanups)
        cls.trained = cls.shared.folder / "run"
        # Small steps: weights that are two versions older still order seeds alike.
        result = train(cls.trained, run__iterations=2, checkpoint__keep=3, explore__seeds=0, train__lr=1e-5)
        assert result.code == FINISHED, result

    def study(self, where=None, settings=None, ranks=0):
        return run(["study", "ranks", "-r", where or self.trained], {**SMALL, **(settings or {})}, ranks)

    def test_table(self):
        before = {path: path.read_bytes() for path in self.trained.rglob("*") if path.is_file() and path.name != FILE}
        result = self.study()
        self.assert_code(FINISHED, result)
        rows = {match[1] + " " + match[2]: [float(x) for x in match.groups()[2:]] for match in ROW.finditer(result.out)}
        expected = ["current 4/4", "other noise 4/4", "current 3/4", "current 2/4"]
        expected += ["1 older 4/4", "1 older 3/4", "1 older 2/4", "2 older 4/4"]
        self.assertEqual(list(rows), expected, str(result))
        self.assertEqual(rows["current 4/4"], [1, 1, 1, 1], "the reference with itself: rho, its interval, tau-b")
        self.assertLess(abs(rows["other noise 4/4"][0]), 0.35, "a mean of 12 prompts, standard error about 0.09")
        for lag in (1, 2):
            self.assertGreater(rows[f"{lag} older 4/4"][0], 0.95, str(result))
        for name, (rho, low, high, _) in rows.items():
            self.assertLessEqual(low - 0.005, rho, name)
            self.assertGreaterEqual(high + 0.005, rho, name)
        for text in ("weights 5, 10 versions older", "checkpoint/every=1 checkpoint/keep=11", "random seeds", FILE):
            self.assertIn(text, result.out)
        self.assertTrue((self.trained / FILE).exists())
        self.assertFalse(list(self.trained.glob(".*.partial")))
        for path, data in before.items():
            self.assertEqual(path.read_bytes(), data, f"{path} was changed")

    def test_of_one_certain_checkpoint(self):
        copy = self.folder / "run"
        shutil.copytree(self.trained, copy, symlinks=True)
        result = self.study(copy / "checkpoints/step_000001")
        self.assert_code(FINISHED, result)
        self.assertIn("weights of version 1", result.out)
        self.assertIn("1 older", result.out)
        self.assertIn("weights 2, 5, 10 versions older", result.out)

    def refused(self, where, settings, *texts, code=sr.USAGE, ranks=0):
        self.assert_refused(self.study(where, settings, ranks), *texts, code=code)
        self.assertFalse((where / FILE).exists())

    def test_refusals(self):
        copy = self.folder / "run"
        shutil.copytree(self.trained, copy, symlinks=True)
        (copy / FILE).unlink(missing_ok=True)
        self.refused(copy, {"study/prompt": 3}, "study/prompt = 3", "did you mean study/prompts?")
        self.refused(copy, {"study/seeds": 3}, "study/seeds = 3", "group/images = 4")
        self.refused(copy, {"study/prompts": 5000}, "study/prompts = 5000", "can be drawn", "lower it")
        self.refused(copy, {"train/lr": 1}, "must keep these settings", "train/lr")
        self.refused(copy, {}, "one process", ranks=2)
        self.refused(self.folder / "none", {}, "no such run directory")
        self.assert_refused(run(["study", "ranks", INPUT, "-r", copy]), "study ranks -r DIR")
        damaged = copy / "checkpoints/step_000001/trainer.h5"
        damaged.write_bytes(damaged.read_bytes()[:-1])
        self.refused(copy, {}, str(damaged), "damaged", code=FILE_SYSTEM)
        shutil.rmtree(copy / "checkpoints/step_000001")
        shutil.rmtree(copy / "checkpoints/step_000000")
        self.refused(copy, {}, "version 2", "no checkpoint", "1, 2, 5, 10", "checkpoint/every=1 checkpoint/keep=11")

    def test_other_files(self):
        directory = self.folder / "run"
        prompts = self.folder / "train.jsonl"
        shutil.copy(sr.SOURCE / "inputs/prompts/shapes_train.jsonl", prompts)
        more = {"prompts__train": prompts, "run__iterations": 1, "explore__seeds": 0}
        self.assert_code(FINISHED, train(directory, **more))
        with open(prompts, "a", encoding="utf-8") as file:
            file.write('{"tag": "colors", "include": [{"class": "ring", "count": 1}], "prompt": "a photo of a ring"}\n')
        self.refused(directory, {}, "prompts/train", "contents have changed since")
        same = {"prompts/train": sr.SOURCE / "inputs/prompts/shapes_train.jsonl"}
        self.assert_code(FINISHED, self.study(directory, same))


if __name__ == "__main__":
    unittest.main()
