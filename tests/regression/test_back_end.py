"""device/backend: who asks for a GPU that cannot be had is told why, before anything is made; who would only like one
gets the CPU, with the reason and the same bits. So with model/activations, of which the CPU has fp32 only.

SPOTLIGHT_DRIVER_STUB, if there is a CUDA back end: a folder with the toolkit's libcuda.so.1, a driver without a device.
With it the plug-in is loaded whole.
"""

import ctypes
import os
import unittest

import spotlight_run as sr

STUB = os.environ.get("SPOTLIGHT_DRIVER_STUB")


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@unittest.skipIf(has_driver(), "this machine has an NVIDIA driver")
class BackEnd(sr.RunTest):
    def assert_refused(self, reason, **options):
        settings = {**sr.TINY, "device/backend": "cuda"}
        result = sr.run([sr.INPUT, "-d", self.folder / "run"], settings, **options)
        self.assert_code(sr.USAGE, result)
        for words in ("device/backend = cuda", reason, "device/backend = kokkos"):
            self.assertIn(words, result.err)
        self.assertFalse((self.folder / "run").exists(), "something was made")

    def test_no_driver(self):
        self.assert_refused("libcuda.so.1")

    @unittest.skipUnless(STUB, "built without the CUDA back end")
    def test_the_plug_in_finds_a_driver_without_a_device(self):
        self.assert_refused("CUDA driver is a stub", env={**os.environ, "LD_LIBRARY_PATH": STUB})

    def test_auto_without_a_gpu_is_the_cpu(self):
        for name, backend in (("auto", "auto"), ("usual", "kokkos")):
            result = sr.train(self.folder / name, device__backend=backend, run__iterations=1)
            self.assert_code(sr.FINISHED, result)
            self.assertEqual("computes on the CPU: there is no NVIDIA driver" in result.out, backend == "auto")
        self.assertEqual(sr.weights(self.folder / "auto"), sr.weights(self.folder / "usual"))

    def test_bf16_activations_need_a_gpu(self):
        for backend in ("kokkos", "auto"):
            result = sr.run([sr.INPUT, "-d", self.folder / "run"],
                            {**sr.TINY, "model/activations": "bf16", "device/backend": backend})
            self.assert_code(sr.USAGE, result)
            for words in ("model/activations = bf16", "the CPU", "fp32", "device/backend = cuda"):
                self.assertIn(words, result.err)
            self.assertFalse((self.folder / "run").exists(), "something was made")

    def test_auto_activations_are_written_down_and_kept(self):
        run = self.folder / "run"
        self.assert_code(sr.FINISHED, sr.train(run, run__iterations=1))
        self.assertIn("activations = fp32", (run / "input.resolved.ini").read_text(encoding="utf-8"))
        result = sr.run([sr.INPUT, "-r", "latest", "-d", run], {**sr.TINY, "run/iterations": 2})
        self.assert_code(sr.FINISHED, result)
        result = sr.run(["-r", "latest", "-d", run], {"model/activations": "bf16"})
        self.assert_code(sr.USAGE, result)
        self.assertIn("model/activations (was fp32, now bf16)", result.err)


if __name__ == "__main__":
    unittest.main()
