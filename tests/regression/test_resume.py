"""A run that is stopped or killed at any moment goes on to the bits of one that never stopped."""

import os
import random
import shutil
import signal
import time
import unittest

import spotlight_run as sr
from spotlight_run import FINISHED, INPUT, STOPPED, TINY, RunTest, history, rows_written, run, train

SETTINGS = dict(TINY, **{"run/iterations": 8, "train/ema_decay": 0.9, "checkpoint/every": 2})
CHANGED = {key.replace("/", "__"): value for key, value in SETTINGS.items()}


class Resume(RunTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gold_test = RunTest()
        cls.gold_test.setUp()
        cls.gold = cls.gold_test.folder / "gold"
        result = train(cls.gold, **CHANGED)
        assert result.code == FINISHED, result

    @classmethod
    def tearDownClass(cls):
        cls.gold_test.doCleanups()
        super().tearDownClass()

    def begin(self, directory, ranks=0, more=None):
        return sr.start(sr.command([INPUT, "-d", directory], dict(SETTINGS, **(more or {})), ranks))

    def finish(self, directory, ranks=0):
        """Resumes and compares with the gold run."""
        result = run(["-r", "latest", "-d", directory], {}, ranks)
        self.assert_code(FINISHED, result)
        self.check(directory)
        return result

    def check(self, directory):
        steps = [row["step"] for row in history(directory)]
        self.assertEqual(steps, list(range(SETTINGS["run/iterations"] + 1)))
        self.assert_same_run(directory, self.gold)

    def test_signals(self):
        for ranks in (0, 3):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
                with self.subTest(ranks=ranks, signal=number.name):
                    directory = self.folder / f"{ranks}-{number.name}"
                    process = self.begin(directory, ranks)
                    sr.wait_for(process, lambda: rows_written(directory) >= 3, "three iterations")
                    process.send_signal(number)
                    result = sr.wait(process)
                    self.assert_code(STOPPED, result)
                    self.assertIn("-r latest -d", result.out, str(result))
                    self.assertLess(rows_written(directory), SETTINGS["run/iterations"])
                    self.finish(directory, ranks)

    def test_asked_twice(self):
        # An iteration of some seconds is in work; its bits are not waited for.
        more = {"group/images": 256, "explore/seeds": 0, "sampler/steps": 40}
        directory = self.folder / "run"
        process = self.begin(directory, 2, more)
        sr.wait_for(process, lambda: (directory / "checkpoints/latest").exists(), "the start")
        process.send_signal(signal.SIGINT)
        time.sleep(2.5)
        process.send_signal(signal.SIGINT)
        result = sr.wait(process)
        self.assert_code(STOPPED, result)
        self.assertIn("asked again, at once", result.err)
        self.assertEqual(rows_written(directory), 0, str(result))

    def test_stopped_in_the_final_evaluation(self):
        directory, gold = self.folder / "run", self.folder / "gold"
        settings = dict(SETTINGS, **{"run/iterations": 1, "eval/seeds": 4, "checkpoint/every": 0})
        process = sr.start(sr.command([INPUT, "-d", directory], settings))
        sr.wait_for(process, lambda: (directory / "checkpoints/step_000001").exists(), "the last iteration")
        process.send_signal(signal.SIGTERM)
        result = sr.wait(process)
        self.assert_code(STOPPED, result)
        self.assertIn("stopped in the final evaluation: SIGTERM. Go on with: -r latest -d", result.out)
        result = run(["-r", "latest", "-d", directory])
        self.assert_code(FINISHED, result)
        self.assertNotIn("iteration 1/1", result.out)
        self.assert_code(FINISHED, run([INPUT, "-d", gold], settings))
        self.assert_same_run(directory, gold)

    def test_time_limit(self):
        directory = self.folder / "run"
        result = run([INPUT, "-d", directory, "-t", "00:00:04"], dict(SETTINGS, **{"run/iterations": 2000}))
        self.assert_code(STOPPED, result)
        self.assertIn("time limit", result.out)
        self.assertLess(result.seconds, 8)
        self.assertGreater(rows_written(directory), 1)
        result = run(["-r", "latest", "-d", directory, "-t", "00:00:02"])
        self.assert_code(STOPPED, result)

    def test_killed_at_random_moments(self):
        moments = random.Random(7)
        for ranks in (0, 4):
            with self.subTest(ranks=ranks):
                directory = self.folder / str(ranks)
                process = self.begin(directory, ranks)
                for _ in range(3):
                    sr.wait_for(process, lambda: (directory / "checkpoints/latest").exists(), "the first checkpoint")
                    time.sleep(moments.uniform(0.05, 1.5))
                    while process.poll() is None:  # some ranks may not have started yet
                        for pid in sr.processes(directory).values():
                            os.kill(pid, signal.SIGKILL)
                        time.sleep(0.05)
                    code = sr.wait(process).code
                    self.assertIn(code, (-signal.SIGKILL, 1, STOPPED))
                    process = sr.start(sr.command(["-r", "latest", "-d", directory], {}, ranks))
                self.assert_code(FINISHED, sr.wait(process))
                self.check(directory)

    def test_another_number_of_ranks(self):
        directory = self.folder / "run"
        process = self.begin(directory, 4)
        sr.wait_for(process, lambda: rows_written(directory) >= 2, "two iterations")
        process.send_signal(signal.SIGUSR1)
        self.assert_code(STOPPED, sr.wait(process))
        self.finish(directory)

    def test_checkpoint_on_request(self):
        directory = self.folder / "run"
        more = {"checkpoint/every": 0, "run/iterations": 400, "checkpoint/keep": 9}
        process = self.begin(directory, 0, more)
        sr.wait_for(process, lambda: rows_written(directory) >= 1, "an iteration")
        (directory / "checkpoint_now").touch()
        sr.wait_for(process, lambda: len(list(directory.glob("checkpoints/step_*"))) == 2, "the start, and the file's")
        self.assertFalse((directory / "checkpoint_now").exists())
        process.send_signal(signal.SIGUSR2)
        sr.wait_for(process, lambda: len(list(directory.glob("checkpoints/step_*"))) == 3, "the checkpoint of the signal")
        process.send_signal(signal.SIGTERM)
        self.assert_code(STOPPED, sr.wait(process))

    def test_one_run_at_a_time(self):
        directory = self.folder / "run"
        process = self.begin(directory)
        sr.wait_for(process, lambda: rows_written(directory) >= 1, "an iteration")
        process.send_signal(signal.SIGSTOP)
        for ranks in (0, 3):
            result = run(["-r", "latest", "-d", directory], ranks=ranks)
            self.assert_refused(result, f"a run is going on in {directory}", f"process {process.pid}")
        process.send_signal(signal.SIGCONT)
        self.assert_code(FINISHED, sr.wait(process))
        self.check(directory)

    def test_the_course_that_was_left_does_not_come_back(self):
        directory = self.folder / "run"
        changed = dict(CHANGED, run__iterations=3, checkpoint__every=1, checkpoint__keep=9)
        self.assert_code(FINISHED, train(directory, **changed))
        first, last = directory / "checkpoints/step_000001", directory / "checkpoints/step_000003"
        self.assert_refused(run(["-r", first, "-d", self.folder / "branch"]), f"-r goes on in {directory}", "copy")
        self.assertTrue(last.exists())
        process = sr.start(sr.command(["-r", first], {"checkpoint/every": 0}))
        sr.wait_for(process, lambda: not last.exists(), "the checkpoints of the course that is left are gone")
        process.kill()
        sr.wait(process)
        result = run(["-r", "latest", "-d", directory])
        self.assert_code(FINISHED, result)
        self.assertIn("resuming at iteration 1", result.out)

    def test_finished_run_with_more_iterations(self):
        directory = self.folder / "run"
        self.assert_code(FINISHED, train(directory, **dict(CHANGED, run__iterations=5)))
        result = run(["-r", "latest", "-d", directory], {"run/iterations": 8})
        self.assert_code(FINISHED, result)
        self.assertEqual([row["step"] for row in history(directory)], list(range(9)))
        # The fifth iteration explored nothing for a sixth one, so the bits are others: only the rows before are equal.
        self.assertEqual(sr.learnt(directory)[:4], sr.learnt(self.gold)[:4])

    def test_what_may_not_change(self):
        directory, model = self.folder / "run", self.folder / "model"
        prompts = self.folder / "train.jsonl"
        shutil.copy(sr.SOURCE / "inputs/prompts/shapes_train.jsonl", prompts)
        shutil.copytree(sr.SOURCE / "inputs/models/tiny-shapes", model)
        self.assert_code(FINISHED, train(directory, model__path=model, prompts__train=prompts, run__iterations=1))
        result = run(["-r", "latest", "-d", directory], {"train/lr": 0.5})
        self.assert_refused(result, "must keep these settings", "train/lr (was 0.0003, now 0.5)", "another directory")
        with open(prompts, "a", encoding="utf-8") as file:
            file.write('{"tag": "colors", "include": [{"class": "heart", "count": 1}], "prompt": "a photo of a heart"}\n')
        result = run(["-r", "latest", "-d", directory])
        self.assert_refused(result, "contents have changed", f"prompts/train ({prompts})", "another directory")
        shutil.copy(sr.SOURCE / "inputs/prompts/shapes_train.jsonl", self.folder / "moved.jsonl")
        moved = {"prompts/train": self.folder / "moved.jsonl", "run/iterations": 2}
        self.assert_code(FINISHED, run(["-r", "latest", "-d", directory], moved))
        words = model / "text_embedding.safetensors"
        data = bytearray(words.read_bytes())
        data[-4] ^= 1
        words.write_bytes(data)
        result = run(["-r", "latest", "-d", directory], moved)
        self.assert_refused(result, "contents have changed", f"text_encoder ({model})")

    def test_directory_in_use(self):
        directory = self.folder / "run"
        self.assert_code(FINISHED, train(directory, run__iterations=1))
        for ranks in (0, 3):
            result = train(directory, ranks=ranks)
            self.assert_refused(result, "holds a run already", "-r latest -d", "choose another directory")


if __name__ == "__main__":
    unittest.main()
