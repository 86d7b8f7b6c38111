"""A reserved rank that dies, is stopped or fails ends the run soon, with one message, and the run can go on.

The loss of spot ranks: test_spot.py.
"""

import os
import shutil
import signal
import socket
import unittest

import spotlight_run as sr
from spotlight_run import FINISHED, INPUT, STOPPED, TINY, RunTest, rows_written, run, train

SETTINGS = dict(TINY, **{"run/iterations": 12})
SOON = 15  # seconds


class Loss(RunTest):
    def lose(self, directory, rank, number, ranks=4, more=None):
        """Sends the signal to a rank after two iterations; what the run then does, with the seconds since."""
        settings = dict(SETTINGS, **{"run/iterations": 500}, **(more or {}))
        process = sr.start(sr.command([INPUT, "-d", directory], settings, ranks))
        sr.wait_for(process, lambda: rows_written(directory) >= 2, "two iterations")
        began = sr.time.monotonic()
        os.kill(sr.processes(directory)[rank], number)
        result = sr.wait(process, began)
        self.assert_code(STOPPED, result)
        self.assertEqual(sr.processes(directory), {}, "orphans")
        return result

    def assert_told(self, result, *texts):
        """One line says it all."""
        lines = (result.out + result.err).splitlines()
        self.assertEqual(len([line for line in lines if all(text in line for text in texts)]), 1, str(result))

    def test_killed_trainer(self):
        result = self.lose(self.folder / "run", 1, signal.SIGKILL)
        self.assertLess(result.seconds, SOON, str(result))
        self.assert_told(result, "rank 1 (trainer) is lost: its connection has ended", "-r latest")

    def test_killed_coordinator(self):
        result = self.lose(self.folder / "run", 0, signal.SIGKILL)
        self.assertLess(result.seconds, SOON, str(result))
        self.assert_told(result, "the connection to the coordinator", "-r latest")

    def test_killed_second_trainer(self):
        result = self.lose(self.folder / "run", 2, signal.SIGKILL, 4, {"ranks/trainers": 2})
        self.assertLess(result.seconds, SOON, str(result))
        self.assert_told(result, "rank 2 (trainer) is lost")

    def test_stopped_trainer(self):
        result = self.lose(self.folder / "run", 1, signal.SIGSTOP)
        self.assertLess(result.seconds, 3 * SOON, str(result))
        self.assert_told(result, "rank 1 (trainer) is lost")

    def test_goes_on_to_the_same_bits(self):
        self.assert_code(FINISHED, train(self.folder / "gold", run__iterations=12))
        directory = self.folder / "run"
        process = sr.start(sr.command([INPUT, "-d", directory], SETTINGS, 4))
        sr.wait_for(process, lambda: rows_written(directory) >= 2, "two iterations")
        os.kill(sr.processes(directory)[1], signal.SIGKILL)
        self.assert_code(STOPPED, sr.wait(process))
        self.assert_code(FINISHED, run(["-r", "latest", "-d", directory], {}, 4))
        self.assert_same_run(directory, self.folder / "gold")

    def test_trainer_that_cannot_write(self):
        # The trainer writes its state itself: its FileError must reach the user, from a rank that is not 0.
        directory = self.folder / "run"
        process = sr.start(sr.command([INPUT, "-d", directory], dict(SETTINGS, **{"run/iterations": 500}), 3))
        sr.wait_for(process, lambda: rows_written(directory) >= 2, "two iterations")
        moved = self.folder / "moved"
        (directory / "checkpoints").rename(moved)
        (directory / "checkpoints").write_text("in the way")
        result = sr.wait(process)
        self.assert_code(sr.FILE_SYSTEM, result)
        self.assert_told(result, "rank 1 (trainer)", "trainer.h5", "Not a directory")
        self.assertLess(result.seconds, SOON)
        (directory / "checkpoints").unlink()
        shutil.move(moved, directory / "checkpoints")
        self.assert_code(FINISHED, run(["-r", "latest", "-d", directory], {"run/iterations": 12}))

    def test_folders_that_killed_runs_have_left(self):
        # mpirun's own are named by its process id, which the next ones have again some day.
        environment = dict(os.environ, TMPDIR=str(self.folder))
        for process_id in range(os.getpid() + 1, os.getpid() + 1000):
            folder = self.folder / f"ompi.{process_id}"
            folder.mkdir()
            (folder / f"pmix.{socket.gethostname()}.tool.{process_id}").touch()
        words = sr.command([INPUT, "-d", self.folder / "run"], TINY, 2)
        self.assert_code(FINISHED, sr.wait(sr.start(words, env=environment)))
        left = [path.name for path in self.folder.iterdir() if not path.name.startswith("ompi.")]
        self.assertEqual(left, ["run"], "mpirun.sh removes its own folder")


if __name__ == "__main__":
    unittest.main()
