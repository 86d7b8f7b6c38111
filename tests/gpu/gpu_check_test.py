"""scripts/gpu_check.sh without a GPU: its rehearsal, its bookkeeping, what it says where there is nothing to run on.

SPOTLIGHT_BUILD names the build folder, SPOTLIGHT_SOURCE the repository.
"""

import copy
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ["SPOTLIGHT_BUILD"])
SOURCE = pathlib.Path(os.environ["SPOTLIGHT_SOURCE"])
SCRIPT = SOURCE / "scripts/gpu_check.sh"
LIMIT = 280

sys.path.insert(0, str(SOURCE / "tests/gpu"))
import report  # noqa: E402
import stages  # noqa: E402
from processes import Processes  # noqa: E402


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def check(*arguments, build=BUILD):
    return subprocess.run([SCRIPT, "-b", str(build), *arguments], capture_output=True, text=True, timeout=LIMIT)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="spotlight-gpu-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def facts(self):
        return json.loads((self.folder / "gpu_check.json").read_text(encoding="utf-8"))


class Script(Folder):
    def test_rehearsal(self):
        names = [name for name in stages.STAGES if name != "peer"]  # importing PyTorch takes longer than all others
        result = check("--cpu", "--stages", ",".join(names), "-o", str(self.folder))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        facts = self.facts()
        self.assertEqual(list(facts["stages"]), names)
        for name, row in facts["stages"].items():
            self.assertEqual(row["status"], "passed", f"{name}: {row}")
        self.assertEqual(len(facts["stages"]["runs"]["numbers"]["runs"]), 4)
        text = (self.folder / "gpu_check.md").read_text(encoding="utf-8")
        for words in ("REHEARSAL", "| qk_rope_backward |", "## Passes"):
            self.assertIn(words, text)

    def test_a_stage_that_dies_or_hangs_does_not_stop_the_others(self):
        build = self.folder / "build"
        for name in stages.PROGRAMS:
            place = build / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(BUILD / name)
        for name, what in (("tests/kernels/kernels_test", "kill -SEGV $$"), ("tests/model/model_test", "sleep 600")):
            (build / name).unlink()
            (build / name).write_text(f"#!/bin/sh\n{what}\n")
            (build / name).chmod(0o755)
        # The sleeping one has what is left of the time.
        result = check("--cpu", "--stages", "kernels,passes,goldens_fp32,model", "--seconds", "25", "-o",
                       str(self.folder), build=build)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        found = {name: (row["status"], row["summary"]) for name, row in self.facts()["stages"].items()}
        self.assertEqual(found["kernels"][0], "failed")
        self.assertIn("exit code -11", found["kernels"][1])
        self.assertEqual(found["passes"][0], "passed")
        self.assertEqual(found["goldens_fp32"][0], "failed")
        self.assertIn("its time was over", found["goldens_fp32"][1])
        text = (self.folder / "gpu_check.md").read_text(encoding="utf-8")
        self.assertIn("cannot list its tests: exit code -11", text)
        self.assertEqual(found["model"], ("skipped", "no time was left"))

    def test_an_interrupted_one_leaves_no_process(self):
        mark = "SPOTLIGHT_TEST_MARK"
        environment = {**os.environ, mark: str(self.folder)}
        process = subprocess.Popen([SCRIPT, "-b", str(BUILD), "--cpu", "--stages", "runs", "-o", str(self.folder)],
                                   env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def marked():
            found = []
            for entry in pathlib.Path("/proc").iterdir():
                try:
                    if entry.name.isdigit() and f"{mark}={self.folder}".encode() in (entry / "environ").read_bytes():
                        found.append((entry / "comm").read_text().strip())
                except OSError:
                    continue
            return found

        deadline = time.monotonic() + 60
        while "spotlight" not in marked():  # a rank, two sessions below
            self.assertLess(time.monotonic(), deadline, "no run has begun")
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, out + err)
        self.assertIn("stopped by signal", err)
        self.assertEqual(marked(), [])

    @unittest.skipIf(has_driver(), "this machine has an NVIDIA driver")
    def test_without_a_gpu(self):
        result = check("-o", str(self.folder))
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertIn("there is no NVIDIA driver (libcuda.so.1) on this machine", result.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_mistakes(self):
        result = check("--cpu", build=self.folder)
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertIn("no complete build: spotlight, tests/kernels/kernels_test", result.stderr)
        result = subprocess.run([SCRIPT, "--cpu", "-b"], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual((result.returncode, result.stderr), (2, "gpu_check.sh: -b needs a build folder: -b FOLDER\n"))
        result = check("--cpu", "--stages", "kernel")
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertIn("no stage kernel; there are kernels,", result.stderr)


# Of bench_operations --small, by what kernels/*.hpp say of arguments: {name: (4-byte numbers, flops)} for b samples.
def expected(b):
    d, head, text, t, n = 48, 24, 56, 5, 5000
    s, r = 36, 36 * b
    tokens, table = r * d, s * head // 2
    latents = r * 64
    joint, square = b * (s + t), 2 * b * (s + t) ** 2 * d
    attention = 4 * joint * d + 2 * joint  # q, k, v, out; log-sum-exp of two heads
    return {
        "layer_norm_modulate_forward": (2 * tokens + 2 * d + 2 * r, 0),
        "layer_norm_modulate_backward": (4 * tokens + 2 * r + d, 0),
        "layer_norm_modulate_backward, sums": (4 * tokens + 2 * r + 5 * d, 0),
        "gated_residual_forward": (3 * tokens + d, 0),
        "gated_residual_layer_norm": (4 * tokens + 3 * d + 2 * r, 0),
        "gated_residual_backward": (3 * tokens + 3 * d, 0),
        "rms_norm_forward": (2 * b * t * text + text + b * t, 0),
        "rms_norm_backward": (3 * b * t * text + 3 * text + b * t, 0),
        "gelu_forward": (8 * tokens, 0),
        "gelu_backward": (12 * tokens, 0),
        "qk_rope_forward": (6 * tokens + 2 * head + 2 * table, 0),
        "qk_rope_backward": (9 * tokens + 2 * head + 2 * table, 0),
        "copy_blocks": (6 * tokens, 0),
        "guidance_forward": (3 * latents, 0),
        "guidance_backward": (5 * latents, 0),
        "normal_noise": (latents, 0),
        "pack_latents": (2 * latents, 0),
        "unpack_latents": (2 * latents, 0),
        "sde_step": (4 * latents, 0),
        "log_prob": (3 * latents + b, 0),
        "log_prob_backward": (5 * latents + 2 * b, 0),
        "step_kl": (2 * latents + b, 0),
        "row_changes": (2 * tokens + 2 * r, 0),
        "subtract": (3 * tokens, 0),
        "merge_rows": (4 * tokens, 0),
        "adam_w_update": (7 * n, 0),
        "squared_norm": (n, 0),
        "all_finite": (n, 0),
        "ema_update": (3 * n, 0),
        "axpy": (3 * n, 0),
        "scale": (2 * n, 0),
        "copy_floats": (2 * n, 0),
        "zero_floats": (n, 0),
        "silu_forward": (2 * n, 0),
        "silu_backward": (4 * n, 0),
        "norm_pixels": (2 * 144 * 8 + 8, 0),
        "add_transposed": (3 * 4 * 192, 0),
        "attention_forward": (attention, 2 * square),
        "attention_backward": (attention + 4 * joint * d, 5 * square),
        "attention_forward, masked": (attention + b * t / 4, 2 * square),  # a byte each
        "attention_backward, masked": (attention + 4 * joint * d + b * t / 4, 5 * square),
        "convolve": (2 * 144 * 8 + 9 * 64 + 8, 2 * 144 * 9 * 64),
        # The first of the layers, d -> d.
        "linear_forward": (2 * tokens + d * d + d, 2 * r * d * d),
        "linear_backward_input": (2 * tokens + d * d, 2 * r * d * d),
        "linear_backward_weight": (2 * tokens + 2 * d * d + 2 * d, 2 * r * d * d),
    }


# Speaks GoogleTest's flags. A.one passes; B.one leaves an error that lasts to all that follow in its process; C.one
# passes alone; D.one skips itself.
TESTS = r"""#!/usr/bin/env python3
import fnmatch, json, sys
flags = dict(word.lstrip("-").split("=", 1) if "=" in word else (word.lstrip("-"), "") for word in sys.argv[1:])
wanted = flags["gtest_filter"].split(":")
chosen = [suite for suite in "ABCD" if any(fnmatch.fnmatch(suite + ".one", pattern) for pattern in wanted)]
if "gtest_list_tests" in flags:
    print("".join(f"{suite}.\n  one\n" for suite in chosen))
    sys.exit(0)
broken, suites = False, []
for suite in chosen:
    broken = broken or suite == "B"
    row = {"name": "one", "status": "RUN", "result": "SKIPPED" if suite == "D" else "COMPLETED"}
    if broken and suite != "D":
        row["failures"] = [{"failure": "launch of K: cudaErrorIllegalAddress, an illegal memory access"}]
    suites.append({"name": suite, "testsuite": [row]})
with open(flags["gtest_output"].removeprefix("json:"), "w") as report:
    json.dump({"testsuites": suites}, report)
sys.exit(1 if broken else 0)
"""


class Suites(Folder):
    def play(self, *wanted):
        (self.folder / "some_test").write_text(TESTS)
        (self.folder / "some_test").chmod(0o755)
        return stages.google_tests(stages.Check(self.folder, Processes()), "some_test", wanted, (), 60)

    def test_an_error_that_lasts_does_not_hide_what_follows(self):
        result = self.play("*")
        self.assertEqual(result.status, "failed", result)
        self.assertEqual(list(result.numbers["failures"]), ["B.one"], result)
        self.assertEqual(result.numbers["tests"], 3)
        self.assertEqual(self.play("A.*", "C.*").summary, "2 tests")

    def test_what_skips_itself_has_not_passed(self):
        self.assertEqual(self.play("D.*").status, "skipped")
        self.assertEqual(self.play("A.*", "D.*").status, "passed")


class Bookkeeping(unittest.TestCase):
    def test_bytes_and_operations_by_definition(self):
        result = subprocess.run([BUILD / "tests/bench/bench_operations", "--small"], capture_output=True, text=True,
                                timeout=LIMIT)
        self.assertEqual(result.returncode, 0, result.stderr)
        numbers = stages.last_json(result.stdout)
        self.assertEqual((numbers["benchmark"], numbers["back_end"], numbers["left_out"]), ("operations", "kokkos", 0))
        self.assertGreater(numbers["copy_gb_per_s"], 0)
        self.assertGreater(numbers["product_tflop_per_s"], 0)
        first = {}
        for row in numbers["operations"]:
            batch = 4 if row["shape"].startswith(("4 x 36", "4 x 5", "4 x (", "144 rows")) else 1
            first.setdefault((row["name"], batch), row)
        for batch in (1, 4):
            for name, (size, flops) in expected(batch).items():
                if batch == 4 and (name, 4) not in first:
                    self.assertNotIn("image tokens", first[name, 1]["shape"], f"{name} has no batch of 4")
                    continue
                row = first[name, batch]
                self.assertEqual((row["bytes"], row["flops"]), (4 * size, flops), row)
        self.assertEqual({name for name, _ in first}, set(expected(1)))
        for row in numbers["operations"]:
            self.assertGreater(row["median_s"], 0)
            self.assertGreaterEqual(row["median_s"], row["min_s"])
            speed = row["bytes"] / row["median_s"] / 1e9
            self.assertAlmostEqual(row["gb_per_s"], speed, delta=0.01 + 1e-3 * speed)
            peak = numbers["product_tflop_per_s"] * 1e12 if row["flops"] else numbers["copy_gb_per_s"] * 1e9
            share = (row["flops"] or row["bytes"]) / row["median_s"] / peak
            self.assertAlmostEqual(row["share"], share, delta=1e-3 + 2e-2 * share)

    def test_passes(self):
        result = subprocess.run([BUILD / "tests/bench/bench_passes", "--small", "--layers=3", "--repeats=2"],
                                capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(result.returncode, 0, result.stderr)
        numbers = stages.last_json(result.stdout)
        self.assertEqual(len(numbers["plan_seconds"]), 5, numbers)
        rows = numbers["passes"]
        self.assertEqual([(row["pixels"], row["mode"]) for row in rows],
                         [(side * 16, mode) for side in (4, 6) for mode in ("forward", "lora", "frozen")])
        for row in rows:
            tokens, width = (row["pixels"] // 16) ** 2 + 5, 48
            products, attention = 24 * tokens * width**2, 4 * tokens**2 * width
            wanted = 3 * (products + attention if row["mode"] == "forward" else 2 * products + 3.5 * attention)
            self.assertAlmostEqual(row["flops"], wanted, delta=1e-5 * wanted)
            self.assertAlmostEqual(row["seconds_of_60_layers"], 20 * row["median_s"], delta=2e-5)


MEASURED = {
    "rehearsal": False, "machine": {"gpu": "a GPU"},
    "stages": {
        "operations": {"status": "passed", "seconds": 1, "summary": "", "memory_mib": 1000, "numbers": {
            "copy_gb_per_s": 4000, "product_tflop_per_s": 800, "operations": [
                {"name": "gelu_forward", "shape": "large", "type": "bf16", "bytes": 10**8, "flops": 0,
                 "median_s": 1e-4, "gb_per_s": 3700, "tflop_per_s": 0, "share": 0.925},
                {"name": "sde_step", "shape": "small", "type": "fp32", "bytes": 10**6, "flops": 0,
                 "median_s": 1e-4, "gb_per_s": 100, "tflop_per_s": 0, "share": 0.025},
                {"name": "convolve", "shape": "any", "type": "fp32", "error": "no plan"}]}},
        "passes": {"status": "passed", "seconds": 1, "summary": "", "memory_mib": None, "numbers": {
            "plan_seconds": [0.8, 0.25, 0.3, 0.2, 0.25], "passes": [
            {"mode": "forward", "pixels": 1280, "layers": 20, "layers_wanted": 20, "activations": "bf16",
             "median_s": 0.1, "tflop_per_s": 560, "share": 0.7, "seconds_of_60_layers": 0.3, "memory_gb": 20},
            {"mode": "lora", "pixels": 1280, "layers": 60, "layers_wanted": 60, "activations": "bf16",
             "median_s": 0.9, "tflop_per_s": 520, "share": 0.65, "seconds_of_60_layers": 0.9, "memory_gb": 90}]}},
        "peer": {"status": "passed", "seconds": 1, "summary": "", "memory_mib": None, "numbers": {"passes": [
            {"mode": "forward", "how": "eager", "attention": "native", "pixels": 1280, "layers": 20, "median_s": 0.2},
            {"mode": "forward", "how": "compiled", "attention": "native", "pixels": 1280, "layers": 20,
             "median_s": 0.12},
            {"mode": "forward", "how": "compiled", "attention": "native", "pixels": 512, "layers": 20,
             "median_s": 0.01}]}},
    },
}


class Report(unittest.TestCase):
    def test_goals(self):
        met = {goal: (yes, figures) for goal, yes, figures in report.goals(MEASURED)}
        self.assertEqual([yes for yes, _ in met.values()], [True, True, True, True])
        self.assertEqual(met["passes are 1.15 times as fast as diffusers'"][1], "least 1.20: forward, 1280 px")
        slower = copy.deepcopy(MEASURED)
        slower["stages"]["operations"]["numbers"]["operations"][0]["share"] = 0.5
        slower["stages"]["passes"]["numbers"]["passes"][1].update(share=0.55, layers=48)
        slower["stages"]["peer"]["numbers"]["passes"][1]["median_s"] = 0.11
        figures = [(yes, text) for _, yes, text in report.goals(slower)]
        self.assertEqual(figures[0], (False, "0 of 1; slowest: gelu_forward 50 %"))
        self.assertEqual(figures[1], (False, "least 55 %: lora, 1280 px"))
        self.assertEqual(figures[2], (False, "least 1.10: forward, 1280 px"))
        self.assertEqual(figures[3], (False, "48 layers, 90 GB"))
        self.assertEqual(report.goals({**slower, "rehearsal": True}), [])

    def test_the_readable_form(self):
        failed = copy.deepcopy(MEASURED)
        failed["stages"]["operations"].update(status="failed", log="no device is left")
        self.assertIn("```\nno device is left\n```", report.markdown(failed))
        text = report.markdown(MEASURED)
        for words in ("| gelu_forward | large | bf16 | 100.0 | 100.0 | 3700 GB/s | 92 % |", "FAILED: no plan",
                      "An attention takes 0.80 s longer the first time, and 0.20 to 0.30 s for each other length of text",
                      "120.0 (compiled, native) | 1.20 |", "| operations | passed | 1 | 1000 |"):
            self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main()
