"""`spotlight sample`: the same images at any batch size and number of ranks, the run's own for its adapter."""

import json
import pathlib
import signal
import unittest
import zlib

import spotlight_run as sr
from spotlight_run import FILE_SYSTEM, FINISHED, INPUT, SOURCE, STOPPED, RunTest, run

TINY = {"eval/seeds": 2, "eval/steps": 3, "device/threads": 1}
CIRCLE, SQUARE = "a photo of a red circle", "a photo of a blue square"
GUIDED = {"sampler/guidance": 3.0, "sampler/negative_prompt": "a photo of a red circle"}
# Large steps, so that the adapter shows in every image.
TRAINED = {"run/iterations": 2, "lora/rank": 4, "lora/alpha": 8, "train/lr": 0.01, "eval/every": 0}


def pixels(path):
    """The decompressed rows of a PNG: what it shows, without the texts that it carries."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        packed += data[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += length + 12
    return zlib.decompress(packed)


def images(folder):
    return {path.name: pixels(path) for path in pathlib.Path(folder).glob("*.png")}


class Sample(RunTest):
    def sample(self, name, settings=None, ranks=0, prompts=()):
        words = ["sample", INPUT, "-d", self.folder / name]
        for prompt in prompts:
            words += ["--prompt", prompt]
        return run(words, {**TINY, **(settings or {})}, ranks)

    def drawn(self, *arguments, **options):
        self.assert_code(FINISHED, self.sample(*arguments, **options))
        return images(self.folder / arguments[0])

    def refused(self, settings, *texts, code=sr.USAGE, **options):
        self.assert_refused(self.sample("refused", settings, **options), *texts, code=code)
        self.assertFalse((self.folder / "refused").exists())

    def few(self):
        """Five held-out prompts."""
        lines = (SOURCE / "inputs/prompts/shapes_eval.jsonl").read_text(encoding="utf-8").splitlines()
        path = self.folder / "eval.jsonl"
        path.write_text("\n".join(lines[:5]) + "\n", encoding="utf-8")
        return path

    def test_same_images_on_any_ranks_and_batches(self):
        settings = {**GUIDED, "prompts/eval": self.few()}
        gold = self.drawn("gold", {**settings, "sampler/batch": 1})
        names = {f"{prompt:05}_{seed:02}.png" for prompt in range(5) for seed in range(2)}
        self.assertEqual(gold.keys(), names | {"grid.png"})
        self.assertEqual(len(set(gold.values())), 11, "all images differ")
        layouts = {"four": (0, 4, 1), "ranks": (4, 3, 1), "pairs": (4, 3, 2), "group": (4, 4, 4)}
        for name, (ranks, batch, degree) in layouts.items():
            with self.subTest(name):
                more = {"sampler/batch": batch, "ranks/explorer_sp": degree}
                self.assertEqual(self.drawn(name, {**settings, **more}, ranks), gold)

    def test_prompts(self):
        both = self.drawn("both", prompts=(CIRCLE, SQUARE, CIRCLE))
        self.assertEqual(both.keys(), {"00000_00.png", "00000_01.png", "00001_00.png", "00001_01.png", "grid.png"})
        one = self.drawn("one", prompts=(SQUARE,))
        # The noise belongs to prompt and seed, not to the place in the list.
        self.assertEqual(one["00000_01.png"], both["00001_01.png"])
        self.assertNotEqual(one["00000_01.png"], one["00000_00.png"])

    def test_refusals(self):
        self.refused({}, 'the word "star"', "--prompt:2", prompts=(CIRCLE, "a photo of a star"))
        self.refused({}, '""', "0 words", prompts=("",))
        self.refused({"prompts/eval": ""}, "no prompts: give --prompt TEXT")
        self.refused({"eval/step": 3}, "eval/step", "did you mean", "eval/steps")
        self.refused({"eval/steps": 1, "sampler/schedule": "qwen"}, "eval/steps", "too few")
        self.refused({"ranks/explorer_sp": 2}, "ranks/explorer_sp=2", "3 on", ranks=3)
        self.refused({"ranks/explorer_sp": 3}, "ranks/explorer_sp = 3", "4 attention heads", "1, 2, 4", ranks=3)
        self.assert_refused(run(["sample", INPUT, "--promt", CIRCLE]), "--promt", "did you mean --prompt?")
        self.assert_refused(run(["sample", INPUT, "-r", "latest"]), "sample takes no -r")
        self.assert_refused(run(["sample"]), "INPUT")

    def test_results_are_never_overwritten(self):
        gold = self.drawn("run", prompts=(CIRCLE,))
        for ranks in (0, 2):
            self.assert_refused(self.sample("run", ranks=ranks, prompts=(SQUARE,)), "holds results already", "-d DIR")
        self.assertEqual(images(self.folder / "run"), gold)
        (self.folder / "file").write_text("in the way", encoding="utf-8")
        self.assert_refused(self.sample("file/below", prompts=(CIRCLE,)), "file/below", code=FILE_SYSTEM)

    def test_disk_too_small(self):
        small = self.folder / "small"
        small.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)]
        if sr.subprocess.run(mount, capture_output=True).returncode != 0:
            self.skipTest("only root may mount a small disk")
        self.addCleanup(sr.subprocess.run, ["umount", str(small)])
        for ranks, degree in ((0, 1), (4, 1), (4, 2)):
            with self.subTest(ranks=ranks, degree=degree):
                name = f"small/{ranks}-{degree}"
                result = self.sample(name, {"sampler/batch": 8, "ranks/explorer_sp": degree}, ranks)
                self.assert_code(FILE_SYSTEM, result)
                self.assertIn("No space left on device", result.err)
                self.assertLess(result.seconds, 30, str(result))
                self.assertEqual(sr.processes(self.folder / name), {}, "orphans")
                sr.shutil.rmtree(self.folder / name)

    def test_stop(self):
        for ranks, degree in ((0, 1), (5, 1), (4, 2)):
            with self.subTest(ranks=ranks, degree=degree):
                directory = self.folder / f"{ranks}-{degree}"
                settings = {**TINY, "eval/seeds": 200, "sampler/batch": 4, "ranks/explorer_sp": degree}
                process = sr.start(sr.command(["sample", INPUT, "-d", directory], settings, ranks))
                sr.wait_for(process, lambda: len(list(directory.glob("*.png"))) > 8, "images")
                began = sr.time.monotonic()
                process.send_signal(signal.SIGINT)
                result = sr.wait(process, began)
                self.assert_code(STOPPED, result)
                self.assertLess(result.seconds, 20, str(result))
                self.assertFalse((directory / "grid.png").exists())
                for path in directory.glob("*.png"):
                    pixels(path)  # whole files only


class Adapters(RunTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shared = RunTest()
        cls.shared.setUp()
        cls.addClassCleanup(cls.shared.doCleanups)
        cls.trained = cls.shared.folder / "run"
        cls.settings = {**sr.TINY, **TRAINED, **GUIDED}
        result = run([INPUT, "-d", cls.trained], cls.settings)
        assert result.code == FINISHED, result
        cls.files = cls.trained / "final/lora"

    sample = Sample.sample
    drawn = Sample.drawn
    refused = Sample.refused

    def test_images_of_a_run(self):
        last = images(self.trained / "samples/step_000002")
        last.pop("grid.png")
        forms = {
            "folder": self.files,
            "diffusers": self.files / "pytorch_lora_weights.safetensors",
            "peft": self.files / "adapter_model.safetensors",
        }
        same = {"eval/seeds": 1, "eval/steps": sr.TINY["eval/steps"], **GUIDED}
        for name, path in forms.items():
            with self.subTest(name):
                ours = self.drawn(name, {**same, "model/adapter": path}, 3 if name == "peft" else 0)
                self.assertGreater(len(last), 3)
                for image, data in last.items():
                    self.assertEqual(ours[image], data, image)
        base = self.drawn("base", same)
        self.assertTrue(all(base[image] != data for image, data in last.items()))

    def test_training_goes_on_from_an_adapter(self):
        more = {"model/adapter": self.files, "run/iterations": 0}
        for name, ranks in (("alone", 0), ("ranks", 4)):
            result = run([INPUT, "-d", self.folder / name], {**self.settings, **more}, ranks)
            self.assert_code(FINISHED, result)
            before, after = sr.weights(self.trained), sr.weights(self.folder / name)
            self.assertEqual(before.keys(), after.keys())
            self.assertEqual(before, after, "alpha / r is a power of two here: folding and unfolding it is exact")
        self.assertEqual(sr.learnt(self.folder / "alone")[0]["eval_reward"], sr.learnt(self.trained)[-1]["eval_reward"])

    def test_adapters_that_do_not_fit(self):
        settings = {**self.settings, "model/adapter": self.files}
        directory = self.folder / "run"
        cases = (
            ({"lora/rank": 8}, "has rank 4", "lora/rank = 8", "set lora/rank=4"),
            ({"lora/rank": 0}, "model/adapter (command line)", "lora/rank"),
            ({"lora/targets": "to_q, to_k"}, "adapts other layers", "lora/targets=", "to_add_out"),
        )
        for changed, *texts in cases:
            for ranks in (0, 3):
                self.assert_refused(run([INPUT, "-d", directory], {**settings, **changed}, ranks), *texts)
        typo = {"model/adapter": self.files / "pytorch_lora_weight.safetensors"}
        self.refused(typo, "no such file", "did you mean", "pytorch_lora_weights.safetensors?")
        self.refused({"model/adapter": self.files.parent / "lor"}, "no such file", "lora?")

    def test_adapter_of_another_base(self):
        other = self.folder / "adapter"
        sr.shutil.copytree(self.files, other)
        (other / "pytorch_lora_weights.safetensors").unlink()
        path = other / "adapter_model.safetensors"
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        deeper = json.dumps({name.replace("blocks.3.", "blocks.9."): value for name, value in header.items()}).encode()
        path.write_bytes(len(deeper).to_bytes(8, "little") + deeper + data[8 + size :])
        self.refused({"model/adapter": other}, "transformer_blocks.3", str(path), "a base of as many blocks")


if __name__ == "__main__":
    unittest.main()
