"""The stages of scripts/gpu_check.sh. Each is a function of a Check (what is checked, and how) that returns a Result.

Tests of the programs kernels_test and model_test are told apart by GoogleTest's filters, so a build without some of
them says so instead of passing.
"""

import dataclasses
import json
import os
import pathlib
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"

# Of kernels_test what is of the CPU: its threads and its formulas, the emulation, instructions run by it.
CPU_ONLY = ("Threads*", "Fingerprint*", "Exp*", "Sigmoid*", "LaneSum*", "CudaOnCpu*", "CudaMatrixRows*", "Mma*")
GOLDEN = ("*DitGolden*", "*LoraGolden*", "*StepCacheGolden*", "VaeGolden*")
BF16 = ("*Bf16*", "*Bfloat16*")
# Of model_test what is neither golden nor of the host.
MODEL = ("*ModulationTable*", "*KeptSamples*", "StepCache.*", "*StepCacheBatch*", "*SequenceParallel*")
# Errors after which the device refuses all work of the process: what comes later fails, too, whatever it computes.
LASTING = ("cudaErrorIllegalAddress", "cudaErrorIllegalInstruction", "cudaErrorLaunchFailure", "cudaErrorLaunchTimeout",
           "cudaErrorMisalignedAddress", "cudaErrorInvalidAddressSpace", "cudaErrorInvalidPc", "cudaErrorAssert",
           "cudaErrorHardwareStackError", "cudaErrorECCUncorrectable")


@dataclasses.dataclass
class Check:
    build: pathlib.Path
    processes: object
    cpu: bool = False  # a rehearsal: the CPU in place of the GPU, everything small
    layers: int = 60
    peer_layers: int = 20
    python: str = "python3"  # with PyTorch and diffusers
    libraries: str = ""  # folders for LD_LIBRARY_PATH, before others

    @property
    def back_end(self):
        return "kokkos" if self.cpu else "cuda"

    def run(self, words, seconds, env=None):
        environment = dict(env or {})
        if self.libraries:
            before = os.environ.get("LD_LIBRARY_PATH", "")
            environment["LD_LIBRARY_PATH"] = self.libraries + (":" + before if before else "")
        return self.processes.run(words, seconds, environment, SOURCE)


@dataclasses.dataclass
class Result:
    status: str
    summary: str
    numbers: dict = dataclasses.field(default_factory=dict)  # for the report
    log: str = ""


def last_json(text):
    """The last line that is a JSON object, or None."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except ValueError:
                continue
    return None


def ended(outcome):
    return "its time was over" if outcome.code is None else f"exit code {outcome.code}"


def filter_of(wanted, unwanted=()):
    return ":".join(wanted) + ("-" + ":".join(unwanted) if unwanted else "")


def run_tests(check, program, chosen, seconds, flags):
    """(outcome, {test: (passed, message)}) of one call; without an entry: it did not get that far."""
    with tempfile.TemporaryDirectory(prefix="spotlight-gpu-") as folder:
        report = pathlib.Path(folder) / "report.json"
        outcome = check.run([check.build / program, *flags, f"--gtest_filter={chosen}",
                             f"--gtest_output=json:{report}", "--gtest_brief=1"], seconds)
        tests = {}
        if report.exists():
            for suite in json.loads(report.read_text(encoding="utf-8"))["testsuites"]:
                for test in suite["testsuite"]:
                    if test["status"] != "RUN" or test.get("result") == "SKIPPED":
                        continue
                    failures = "\n".join(failure["failure"] for failure in test.get("failures", ()))
                    tests[f"{suite['name']}.{test['name']}"] = (not failures, failures)
    return outcome, tests


def suites_of(check, program, chosen, seconds):
    """(outcome, names with their dots)"""
    outcome = check.run([check.build / program, f"--gtest_filter={chosen}", "--gtest_list_tests"], min(30, seconds))
    return outcome, [line.split()[0] for line in outcome.out.splitlines() if line and not line.startswith(" ")]


def to_run_alone(suites, outcome, tests):
    """The suites of which nothing is known after a call with all: it died, or an error that lasts hid what followed."""
    if not tests and outcome.code != 0:
        return suites
    if not any(word in message for _, message in tests.values() for word in LASTING):
        return []
    of = {suite: [passed for name, (passed, _) in tests.items() if name.startswith(suite)] for suite in suites}
    return [suite for suite, passed in of.items() if not (passed and all(passed))]


def google_tests(check, program, wanted, unwanted, seconds, flags=()):
    """All in one process; suites of which that tells nothing each by itself, so that one fault does not hide others."""
    flags = flags or (f"--back_end={check.back_end}",)
    chosen = filter_of(wanted, unwanted)
    began = time.monotonic()
    outcome, suites = suites_of(check, program, chosen, seconds)
    if outcome.code != 0:
        return Result(FAILED, f"{program} cannot list its tests: {ended(outcome)}", {}, outcome.tail())
    if not suites:
        return Result(SKIPPED, f"this build's {program.split('/')[-1]} has no test {chosen}")
    outcome, tests = run_tests(check, program, chosen, seconds * 0.65, flags)
    log = outcome.tail()
    dead = {}
    again = to_run_alone(suites, outcome, tests)
    negative = "-" + ":".join(unwanted) if unwanted else ""
    for number, suite in enumerate(again):
        tests = {name: result for name, result in tests.items() if not name.startswith(suite)}
        left = seconds - (time.monotonic() - began)
        alone, some = run_tests(check, program, f"{suite}*{negative}", left / (len(again) - number), flags)
        tests.update(some)
        if not some and alone.code != 0:
            dead[suite] = f"{ended(alone)}\n{alone.tail(600)}"
    bad = {name: message for name, (passed, message) in tests.items() if not passed}
    numbers = {"tests": len(tests), "failures": {**bad, **dead}}
    if bad or dead:
        return Result(FAILED, f"{len(bad)} of {len(tests)} tests failed, {len(dead)} suites died: "
                      + ", ".join([*bad, *dead][:6]), numbers, log)
    if outcome.code != 0:
        return Result(FAILED, f"{len(tests)} tests passed, but {ended(outcome)} with all of them in one process",
                      numbers, log)
    if not tests:
        return Result(SKIPPED, f"all tests {chosen} skip themselves here", numbers, log)
    return Result(PASSED, f"{len(tests)} tests", numbers)


def kernels(check, seconds):
    few = ("Gelu*", "QkRope*", "*Attention*") if check.cpu else ("*",)
    return google_tests(check, "tests/kernels/kernels_test", few, CPU_ONLY, seconds)


def goldens_fp32(check, seconds):
    return google_tests(check, "tests/model/model_test", ("*LoraGolden*",) if check.cpu else GOLDEN, BF16, seconds)


def twice(check, first, wanted, seconds):
    """Result of model_test: `first`, and the tests `wanted` with activations in bfloat16 (of the CPU the emulation alone
    takes them)."""
    flags = ("--back_end=" + ("cuda_on_cpu" if check.cpu else "cuda"), "--activations=bf16")
    activations = google_tests(check, "tests/model/model_test", wanted, (), seconds, flags)
    numbers = {"tests": first.numbers.get("tests", 0) + activations.numbers.get("tests", 0),
               "failures": {**first.numbers.get("failures", {}),
                            **{f"bf16 {name}": why for name, why in activations.numbers.get("failures", {}).items()}}}
    status = max(first.status, activations.status, key=(SKIPPED, PASSED, FAILED).index)
    return Result(status, f"{first.summary}; bf16 activations: {activations.summary}", numbers,
                  "\n".join(log for log in (first.log, activations.log) if log))


def goldens_bf16(check, seconds):
    weights = google_tests(check, "tests/model/model_test", ("Bfloat16Golden*",) if check.cpu else BF16,
                           ("*NodeWeights*",), seconds / 2)
    weights.summary = f"weights: {weights.summary}"
    return twice(check, weights, ("*LoraGolden*",) if check.cpu else GOLDEN[:3], seconds / 2)


def model(check, seconds):
    some = ("*KeptSamples*",) if check.cpu else MODEL
    fp32 = google_tests(check, "tests/model/model_test", some, (*GOLDEN, *BF16), seconds / 2)
    fp32.summary = f"fp32: {fp32.summary}"
    return twice(check, fp32, some, seconds / 2)


def benchmark(check, words, seconds):
    outcome = check.run([*words, f"--back_end={check.back_end}", f"--seconds={seconds * 0.75:.0f}",
                         *(["--small"] if check.cpu else [])], seconds)
    numbers = last_json(outcome.out)
    if numbers is None:
        return None, Result(FAILED, ended(outcome), {}, outcome.tail())
    return numbers, Result(PASSED if outcome.code == 0 else FAILED, "", numbers, outcome.tail())


def operations(check, seconds):
    numbers, result = benchmark(check, [check.build / "tests/bench/bench_operations"], seconds)
    if numbers is None:
        return result
    errors = [row for row in numbers["operations"] if "error" in row]
    result.summary = (f"{len(numbers['operations'])} measured, copy {numbers['copy_gb_per_s']:.0f} GB/s, product "
                      f"{numbers['product_tflop_per_s']:.1f} TFLOP/s, {numbers['left_out']} left out for want of time")
    if errors:
        result.summary += f"; {len(errors)} FAILED: " + ", ".join(sorted({row["name"] for row in errors})[:6])
    return result


def passes(check, seconds):
    layers = [2] if check.cpu else sorted({check.layers, check.peer_layers}, reverse=True)
    numbers, result = benchmark(check, [check.build / "tests/bench/bench_passes",
                                        "--layers=" + ",".join(map(str, layers)),
                                        f"--repeats={2 if check.cpu else 5}"], seconds)
    if numbers is None:
        return result
    errors = [row for row in numbers["passes"] if "error" in row]
    result.summary = f"{len(numbers['passes'])} passes, {numbers['left_out']} left out for want of time"
    if errors:
        result.summary += f"; {len(errors)} FAILED: {errors[0]['error'][:200]}"
    return result


def peer(check, seconds):
    """diffusers on PyTorch, at the same sizes. Where it is not there, that is not our failure."""
    outcome = check.run([check.python, "-B", SOURCE / "scripts/bench/diffusers_passes.py",
                         f"--layers={2 if check.cpu else check.peer_layers}", f"--seconds={seconds * 0.65:.0f}",
                         *(["--device=cpu", "--small", "--repeats=2"] if check.cpu else [])], seconds)
    numbers = last_json(outcome.out)
    if numbers is None:
        why = outcome.err.strip().splitlines()[-1:] or [ended(outcome)]
        return Result(SKIPPED, f"no comparison with diffusers: {why[0][:300]} ({check.python})", {}, outcome.tail())
    versions = " ".join(f"{name} {version}" for name, version in numbers["versions"].items())
    return Result(PASSED, f"{versions}, {len(numbers['passes'])} passes, {numbers['left_out']} left out", numbers)


def runs(check, seconds):
    env = {"SPOTLIGHT_BINARY": str(check.build / "spotlight"), "SPOTLIGHT_SOURCE": str(SOURCE),
           "OMP_WAIT_POLICY": "passive"}
    packed = check.build / "mpi/bin/mpirun"
    if packed.exists():
        env["SPOTLIGHT_MPIRUN"] = str(packed)
    outcome = check.run(["python3", "-B", SOURCE / "tests/gpu/runs.py", check.back_end], seconds, env)
    numbers = last_json(outcome.out)
    if numbers is None:
        return Result(FAILED, ended(outcome), {}, outcome.tail())
    bad = [name for name, row in numbers["runs"].items() if not row["passed"]]
    if bad or outcome.code != 0:
        return Result(FAILED, f"{len(bad)} of {len(numbers['runs'])} failed: {', '.join(bad)}; {ended(outcome)}",
                      numbers, outcome.tail())
    return Result(PASSED, ", ".join(numbers["runs"]), numbers)


# Name -> (function, seconds that it may take, what it is).
STAGES = {
    "kernels": (kernels, 100, "every kernel's tests on the device"),
    "goldens_fp32": (goldens_fp32, 40, "diffusers' golden vectors, activations in fp32"),
    "goldens_bf16": (goldens_bf16, 30, "the same, bfloat16"),
    "runs": (runs, 90, "whole runs of the tiny model"),
    "model": (model, 50, "what must not change a bit of the model, with fp32 activations and with bfloat16 ones"),
    "operations": (operations, 75, "each operation's bytes and arithmetic a second"),
    "passes": (passes, 70, "passes of the transformer at its real width"),
    "peer": (peer, 130, "the same by diffusers on PyTorch"),
}
PROGRAMS = ("spotlight", "tests/kernels/kernels_test", "tests/model/model_test", "tests/bench/bench_operations",
            "tests/bench/bench_passes")
PLUG_INS = ("libspotlight_cuda.so", "tests/kernels/libspotlight_cuda.so", "tests/model/libspotlight_cuda.so",
            "tests/bench/libspotlight_cuda.so", "tests/bench/libspotlight_cuda_meter.so")
