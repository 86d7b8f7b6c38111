"""`spotlight pretrain` on a tiny network: it learns, resumes with the same bits, and its result is a model folder.

Environment: SPOTLIGHT_BINARY (the program) and SPOTLIGHT_SOURCE (the source tree). Standard library only.
"""

import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

BINARY = os.environ["SPOTLIGHT_BINARY"]
SOURCE = pathlib.Path(os.environ["SPOTLIGHT_SOURCE"])
INPUT = SOURCE / "inputs/pretrain_shapes.ini"
TINY = [
    "pretrain/steps=150", "pretrain/batch=8", "pretrain/num_layers=1", "pretrain/num_heads=2", "pretrain/eval_every=50",
    "pretrain/checkpoint_every=10", "eval/seeds=1", "eval/steps=2", "device/threads=1",
]
FILES = ("diffusion_pytorch_model.safetensors", "text_embedding.safetensors", "config.json")


def spotlight(*arguments):
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, cwd=SOURCE, check=False)


def losses(directory):
    return [json.loads(line)["loss"] for line in (directory / "history.jsonl").read_text().splitlines()]


class Pretrain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name)
        cls.whole = cls.root / "whole"
        cls.first = spotlight("pretrain", INPUT, *TINY, "-d", cls.whole)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def stop(self, directory, number):
        """Starts a run, sends it the signal after its first checkpoint and returns its exit code."""
        command = [BINARY, "pretrain", str(INPUT), *TINY, "-d", str(directory)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=SOURCE) as process:
            deadline = time.monotonic() + 60
            while not (directory / "checkpoints/latest").exists():
                self.assertIsNone(process.poll(), "the run ended before it could be stopped")
                self.assertLess(time.monotonic(), deadline, "no checkpoint")
                time.sleep(0.005)
            process.send_signal(number)
            return process.wait(60)

    def assert_same_result(self, directory):
        for name in FILES:
            with self.subTest(name):
                ours, whole = (folder / "final" / name for folder in (directory, self.whole))
                self.assertEqual(ours.read_bytes(), whole.read_bytes())
        self.assertEqual(losses(directory)[1:], losses(self.whole)[1:])

    def test_learns(self):
        self.assertEqual(self.first.returncode, 0, self.first.stderr)
        values = losses(self.whole)
        self.assertEqual(len(values), 3)
        self.assertLess(values[2], 0.7 * values[0])
        self.assertIn("held-out 0.", self.first.stdout)

    def test_resumes_after_a_kill(self):
        directory = self.root / "killed"
        self.assertEqual(self.stop(directory, signal.SIGKILL), -signal.SIGKILL)
        self.assertFalse((directory / "final").exists())
        resumed = spotlight("pretrain", "-r", "latest", "-d", directory)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn("resuming at step", resumed.stdout)
        self.assert_same_result(directory)

    def test_resumes_after_a_stop(self):
        directory = self.root / "stopped"
        self.assertEqual(self.stop(directory, signal.SIGTERM), 75)
        resumed = spotlight("pretrain", "-r", "latest", "-d", directory)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assert_same_result(directory)

    def test_a_run_that_diverges_says_so_and_leaves_no_model(self):
        directory = self.root / "diverged"
        result = spotlight("pretrain", INPUT, *TINY, "pretrain/lr=1e30", "pretrain/checkpoint_every=1", "-d", directory)
        self.assertEqual(result.returncode, 75, result.stdout + result.stderr)
        self.assertIn("diverged", result.stdout + result.stderr)
        self.assertIn("pretrain/lr", result.stdout + result.stderr)
        self.assertFalse((directory / "final").exists())

    def test_does_not_overwrite_a_run(self):
        again = spotlight("pretrain", INPUT, *TINY, "-d", self.whole)
        self.assertEqual(again.returncode, 2)
        self.assertIn(f"run/directory = {self.whole}: it holds a run already", again.stderr)

    def test_result_is_a_model_folder(self):
        job = spotlight(SOURCE / "inputs/smoke.ini", f"model/path={self.whole / 'final'}", "run/iterations=1",
                        "group/images=2", "eval/steps=2", "sampler/steps=6", "device/threads=1", "-d",
                        self.root / "job")
        self.assertEqual(job.returncode, 0, job.stderr)
        self.assertIn("Held-out score", job.stdout)


if __name__ == "__main__":
    unittest.main()
