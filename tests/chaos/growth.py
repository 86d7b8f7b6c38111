"""Whether a run's processes grow while spot ranks come and go: memory, descriptors, threads, shared memory."""

import pathlib

KIBIBYTES_OF_GROWTH = 16 * 1024  # of memory, in half of the run: allocators keep what they once had
THINGS_OF_GROWTH = 12  # descriptors and threads, in three quarters of it


def most_memory(seen, quarter):
    """Of the looks of a quarter (0 .. 3): a trainer's memory swings by 40 MiB within an iteration, so single looks say
    nothing."""
    count = len(seen)
    return max(look[0] for look in seen[count * quarter // 4 : count * (quarter + 1) // 4])


class Growth:
    """Of the coordinator, the trainer and one explorer of the first job, after the first quarter of the `look`s."""

    def __init__(self, run):
        self.run = run
        self.watched = {"coordinator": run.coordinator(), "trainer": run.trainer()}
        explorers = run.explorers()
        if explorers:
            self.watched["explorer"] = explorers[0]
        self.seen = {name: [] for name in self.watched}
        self.shared = []

    def look(self):
        for name, process in self.watched.items():
            folder = pathlib.Path("/proc") / str(process.pid)
            try:
                status = dict(
                    line.split(":", 1) for line in (folder / "status").read_text(encoding="utf-8").splitlines()
                )
                memory = int(status["VmRSS"].split()[0])
                self.seen[name].append((memory, len(list((folder / "fd").iterdir())), int(status["Threads"])))
            except (OSError, KeyError):
                continue
        self.shared.append(len(list(pathlib.Path("/dev/shm").iterdir())))

    def check(self):
        """Adds violations to the run; returns lines of a table."""
        lines = []
        for name, seen in self.seen.items():
            if len(seen) < 4:
                continue
            first = (most_memory(seen, 1), *seen[len(seen) // 4][1:])
            last = (most_memory(seen, 3), *seen[-1][1:])
            lines.append(
                f"{name}: memory {first[0] / 1024:.1f} -> {last[0] / 1024:.1f} MiB, descriptors {first[1]} -> {last[1]}"
                f", threads {first[2]} -> {last[2]}"
            )
            grown = last[0] - first[0] > KIBIBYTES_OF_GROWTH or any(
                last[i] - first[i] > THINGS_OF_GROWTH for i in (1, 2)
            )
            self.run.check(not grown, "grows: " + lines[-1])
        if len(self.shared) >= 4:
            lines.append(f"/dev/shm: {self.shared[len(self.shared) // 4]} -> {self.shared[-1]} names")
            self.run.check(self.shared[-1] - self.shared[len(self.shared) // 4] < THINGS_OF_GROWTH, lines[-1])
        return lines
