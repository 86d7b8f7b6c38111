"""A full disk ends the run with exit code 74 and leaves the last checkpoint good; a damaged one is passed over."""

import os
import resource
import shutil
import subprocess
import unittest

import spotlight_run as sr
from spotlight_run import FILE_SYSTEM, FINISHED, INPUT, TINY, RunTest, run, train


def flip_a_byte(path):
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


class Disk(RunTest):
    def test_full_disk(self):
        # A limit on the size of files stands for the full disk: run.h5 outgrows it in the middle of the run.
        settings = dict(TINY, **{"run/iterations": 12, "checkpoint/every": 3, "lora/rank": 1, "output/grid_every": 4})
        gold = self.folder / "gold"
        self.assert_code(FINISHED, run([INPUT, "-d", gold], settings))
        limit = (gold / "run.h5").stat().st_size - 4096

        def limit_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        directory = self.folder / "run"
        result = run([INPUT, "-d", directory], settings, preexec_fn=limit_files)
        self.assert_code(FILE_SYSTEM, result)
        self.assertRegex(result.out + result.err, r"run\.h5.*: File too large\n")
        self.assert_code(FINISHED, run(["-r", "latest", "-d", directory]))
        self.assert_same_run(directory, gold)

    def test_disk_too_small_for_a_checkpoint(self):
        small = self.folder / "small"
        small.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(small)], capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("only root may mount a small disk")
        self.addCleanup(subprocess.run, ["umount", str(small)])
        for ranks in (0, 3):
            with self.subTest(ranks=ranks):
                directory = small / str(ranks)
                result = run([INPUT, "-d", directory], TINY, ranks)
                self.assert_code(FILE_SYSTEM, result)
                self.assertRegex(result.out + result.err, r"trainer\.h5.*: No space left on device\n")
                self.assertNotIn("iteration 1/", result.out, "the start is saved first")
                shutil.rmtree(directory)

    def test_a_file_where_a_folder_is_to_be(self):
        directory = self.folder / "run"
        directory.mkdir()
        (directory / "samples").write_text("in the way")
        result = run([INPUT, "-d", directory], TINY)
        self.assert_code(FILE_SYSTEM, result)
        self.assertIn("samples", result.out + result.err, str(result))

    def test_the_coordinators_code_is_the_runs(self):
        # It fails before it has told the workers anything; they see their connections end.
        result = run([INPUT, "-d", self.folder / "run"], dict(TINY, **{"store/path": "/proc/store"}), 3)
        self.assert_code(FILE_SYSTEM, result)
        self.assertIn("/proc/store", result.err, str(result))

    def test_damaged_checkpoint(self):
        for name in ("trainer.h5", "coordinator.h5"):
            with self.subTest(name):
                directory = self.folder / name
                self.assert_code(FINISHED, train(directory))
                gold = {"weights": sr.weights(directory), "learnt": sr.learnt(directory)}
                flip_a_byte(directory / "checkpoints/step_000004" / name)
                result = run(["-r", "latest", "-d", directory])
                self.assert_code(FINISHED, result)
                self.assertIn(f"step_000004/{name}: damaged", result.out, str(result))
                self.assertIn("resuming at iteration", result.out)
                self.assertEqual(sr.learnt(directory), gold["learnt"])
                self.assertTrue(sr.weights(directory) == gold["weights"])

    def test_all_checkpoints_damaged(self):
        directory = self.folder / "run"
        self.assert_code(FINISHED, train(directory, run__iterations=2))
        for folder in directory.glob("checkpoints/step_*"):
            flip_a_byte(folder / "trainer.h5")
        result = run(["-r", "latest", "-d", directory])
        self.assert_refused(result, "every checkpoint", "damaged", code=FILE_SYSTEM)


if __name__ == "__main__":
    unittest.main()
