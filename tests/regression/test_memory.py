"""--dry-run's memory of each role against the peak that the kernel saw in a real run of the default input."""

import re
import unittest

import spotlight_run as sr
from spotlight_run import FINISHED, INPUT, RunTest, run, rows_written

# Two iterations: all buffers have their final size.
SETTINGS = {"run/iterations": 40, "device/threads": 1}


def peaks(directory):
    """{rank: MiB}"""
    found = {}
    for rank, pid in sr.processes(directory).items():
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            found[rank] = int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1]) / 1024
    return found


class Memory(RunTest):
    def estimate(self, settings):
        """{role: MiB}"""
        result = run([INPUT, "--dry-run"], settings)
        self.assert_code(FINISHED, result)
        return {role: float(total) for role, total in re.findall(r"^  (\w+) .* = ([\d.]+)$", result.out, re.M)}

    def measure(self, settings, ranks):
        directory = self.folder / str(ranks)
        process = sr.start(sr.command([INPUT, "-d", directory], settings, ranks))
        sr.wait_for(process, lambda: rows_written(directory) >= 3, "three iterations")
        found = peaks(directory)
        sr.kill_session(process.pid)
        process.communicate()
        return found

    def test_estimate(self):
        estimate = self.estimate(SETTINGS)
        ranks = self.measure(SETTINGS, 3)
        measured = {
            "coordinator": ranks[0],
            "trainer": ranks[1],
            "explorer": ranks[2],
            "all": self.measure(SETTINGS, 0)[0],
        }
        self.assert_close(measured, estimate)

    def test_shared_passes(self):
        shared = {**SETTINGS, "ranks/trainers": 2, "ranks/trainer_sp": 2}
        self.assert_close({"trainer": self.measure(shared, 4)[1]}, self.estimate(shared))

    def assert_close(self, measured, estimate):
        print("\nMiB measured (estimated):", {r: f"{m:.0f} ({estimate[r]:.0f})" for r, m in measured.items()})
        for role, peak in measured.items():
            self.assertLess(abs(estimate[role] / peak - 1), 0.15, f"{role}: {estimate[role]} MiB, not {peak:.1f}")


if __name__ == "__main__":
    unittest.main()
