"""Runs commands so that none of their processes outlives them: every one of them, ranks of mpirun and what tests start
in sessions of their own too, inherits a mark in its environment, and whoever has the mark is killed at the end.
"""

import os
import pathlib
import signal
import subprocess
import time
import uuid

MARK = "SPOTLIGHT_GPU_CHECK"


class Outcome:
    """code: None if the time was over."""

    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    def tail(self, characters=1500):
        """The end of what was said, errors last."""
        return (self.out[-characters:] + "\n" + self.err[-characters:]).strip()


class Processes:
    def __init__(self):
        self.mark = uuid.uuid4().hex

    def run(self, words, seconds, env=None, cwd=None):
        """Ends within `seconds`, and kills what is left of it also when it is interrupted."""
        began = time.monotonic()
        environment = {**os.environ, **(env or {}), MARK: self.mark}
        process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   stdin=subprocess.DEVNULL, env=environment, cwd=cwd, start_new_session=True,
                                   text=True, errors="replace")
        try:
            out, err = process.communicate(timeout=max(seconds, 0.1))
            code = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.kill_all()
            out, err = process.communicate()
            code = None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # also where /proc does not show environments
            except OSError:
                pass
            self.kill_all()
        return Outcome(code, out, err, time.monotonic() - began)

    def marked(self):
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            try:
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # has ended, or is somebody else's
        return found

    def kill_all(self):
        """Until a second look finds none: a process may be starting another one."""
        while True:
            left = self.marked()
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            if not left:
                return
            time.sleep(0.02)
