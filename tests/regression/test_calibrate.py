"""`spotlight calibrate`: a polynomial to paste, and how well cheaper exploration ranks."""

import re
import unittest

import spotlight_run as sr
from spotlight_run import FINISHED, RunTest, run, train

SMALL = {
    "group/prompts": 3,
    "group/images": 4,
    "explore/seeds": 4,
    "sampler/steps": 5,
    "sampler/window_size": 2,
    "device/threads": 1,
}


class Calibrate(RunTest):
    def test_the_polynomial_it_prints_is_an_input(self):
        result = run(["calibrate", sr.INPUT], SMALL)
        self.assert_code(FINISHED, result)
        line = re.search(r"^cache_polynomial = (.*)$", result.out, re.M)
        self.assertIsNotNone(line, str(result))
        self.assertEqual(len(line[1].split(",")), 5, line[1])
        settings = {**SMALL, "explore/cache": "tea", "explore/cache_polynomial": line[1]}
        settings = {key.replace("/", "__"): value for key, value in settings.items()}
        self.assert_code(FINISHED, train(self.folder / "run", run__iterations=2, **settings))

    def test_two_calls_print_the_same_ranks(self):
        def ranks(result):  # without the column of times
            self.assert_code(FINISHED, result)
            return re.findall(r"^cache_polynomial.*|-?\d\.\d+ \+- \d\.\d+", result.out, re.M)

        first = ranks(run(["calibrate", sr.INPUT], SMALL))
        self.assertGreater(len(first), 4)
        self.assertEqual(ranks(run(["calibrate", sr.INPUT], {**SMALL, "device/threads": 2})), first)

    def test_mistakes(self):
        self.assert_refused(run(["calibrate", sr.INPUT], {"sampler/stepz": 3}), "sampler/steps")
        self.assert_refused(run(["calibrate", "inputs/genevel.ini"]), "geneval.ini")
        self.assert_refused(run(["calibrate", sr.INPUT, "--dry-run"]), "calibrate takes neither")


if __name__ == "__main__":
    unittest.main()
