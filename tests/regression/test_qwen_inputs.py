"""The four Qwen-Image inputs, checked and planned without weights and embeddings, as a user sees them first."""

import re
import unittest

import spotlight_run as sr
from spotlight_run import FINISHED, RunTest, run

NAMES = ("geneval_512", "geneval_1280", "ocr_512", "ocr_1280")
INPUTS = [sr.SOURCE / f"inputs/qwen_image_{name}.ini" for name in NAMES]
GENEVAL = INPUTS[0]
DEVICES = ("H100-80", "H200-141")


def keys(path):
    """{section/key: (value, comments behind it and in the lines above)}"""
    found, section, above = {}, "", ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        if match := re.match(r"(\w+) = ([^#]*)(.*)", line):
            found[f"{section}/{match[1]}"] = (match[2].strip(), match[3] + above)
        elif line.startswith("#"):
            above += line
        else:
            above = ""
    return found


class QwenInputs(RunTest):
    def answer(self, path, option, **settings):
        settings = {key.replace("__", "/"): value for key, value in settings.items()}
        result = run([path, option, "-d", self.folder / "run"], settings)
        self.assert_code(FINISHED, result)
        self.assertFalse((self.folder / "run").exists())
        self.assertEqual(result.err, "")
        return result.out

    def verdicts(self, out, role):
        """{device: what is said of it}"""
        section = re.search(rf"^  {role} +[\d.]+ GiB on the device.*\n((?:    .*\n)+)", out, re.M)
        self.assertIsNotNone(section, out)
        return dict(re.findall(r"^    (\S+) \([\d.]+ GiB\): (.*)$", section[1], re.M))

    def test_check(self):
        for path in INPUTS:
            with self.subTest(path.name):
                out = self.answer(path, "--check")
                self.assertIn("all settings are allowed", out)
                self.assertIn("20430.40 M parameters", out)
                self.assertIn("transformer: no weights here", out)
                self.assertIn("vae: no weights", out)
                self.assertRegex(out, r"no embeddings yet; make them with scripts/encode_prompts.py .* --output ")

    def test_dry_run(self):
        for path in INPUTS:
            with self.subTest(path.name):
                out = self.answer(path, "--dry-run")
                self.assertIn("32 prompts x 16 images = 512 images of 10 steps", out)
                self.assertIn("an adapter of 424.67 M parameters over a base of 13604.31 M in bf16, 25.35 GiB", out)
                self.assertIn("no weights here", out)
                self.assertIn("no embeddings yet", out)
                self.assertIn("texts of 64 tokens are assumed", out)
                for role in ("trainer", "explorer"):
                    verdicts = self.verdicts(out, role)
                    self.assertEqual(tuple(verdicts), DEVICES)
                    for verdict in verdicts.values():
                        self.assertRegex(verdict, r"^fits, [\d.]+ GiB to spare$")

    def test_every_key_says_where_it_comes_from(self):
        sources = ("paper", "Paper", "note", "Flow-GRPO", "Qwen", "default", "ours", "YOURS")
        for path in INPUTS:
            found = keys(path)
            self.assertGreater(len(found), 50)
            for key, (value, comment) in found.items():
                known = any(source in comment for source in sources)
                self.assertTrue(known, f"{path.name}: {key} = {value}: {comment}")

    def test_inputs_differ_in_task_and_size_only(self):
        of_task = {"prompts/train", "prompts/eval", "prompts/embeddings", "reward/command", "eval/seeds"}
        of_size = {"sampler/height", "sampler/width", "sampler/batch", "train/micro_batch", "ranks/explorer_sp"}
        first, *others = [{key: value for key, (value, _) in keys(path).items()} for path in INPUTS]
        for other, expected in zip(others, (of_size, of_task, of_size | of_task)):
            self.assertEqual(other.keys(), first.keys())
            self.assertEqual({key for key in other if other[key] != first[key]}, expected)

    def test_command_is_not_started(self):
        started = self.folder / "started"
        for option in ("--check", "--dry-run"):
            self.answer(GENEVAL, option, reward__command=f"touch {started}")
        self.assertFalse(started.exists())

    def test_mistyped_key(self):
        path = self.folder / "typo.ini"
        path.write_text(GENEVAL.read_text(encoding="utf-8").replace("micro_batch =", "micro_bach ="), encoding="utf-8")
        for option in ("--check", "--dry-run"):
            self.assert_refused(run([path, option]), "typo.ini:", "did you mean train/micro_batch?")

    def test_degree_that_the_heads_do_not_allow(self):
        for key in ("ranks/explorer_sp", "ranks/trainer_sp"):
            settings = {key: 5, "ranks/trainers": 5}
            for option in ("--check", "--dry-run"):
                result = run([GENEVAL, option], settings)
                self.assert_refused(result, f"{key} = 5", "24 attention heads", "1, 2, 3, 4, 6, 8, 12, 24")

    def test_shared_weights_need_full_training(self):
        result = run([GENEVAL, "--check"], {"train/shard_weights": "true"})
        self.assert_refused(result, "train/shard_weights", "lora/rank")

    def test_what_does_not_fit(self):
        # A device has activations in bfloat16 unless fp32 is asked for, whatever computes here.
        for activations, batch, settings in (("bf16", 16, {}), ("fp32", 8, {"model__activations": "fp32"})):
            out = self.answer(GENEVAL, "--dry-run", train__micro_batch=64, **settings)
            self.assertIn(f"activations ({activations}) there", out)
            expected = f"does not fit; it does with train/micro_batch={batch}"
            self.assertEqual(self.verdicts(out, "trainer")["H100-80"], expected)
            out = self.answer(GENEVAL, "--dry-run", train__micro_batch=batch, **settings)
            self.assertRegex(self.verdicts(out, "trainer")["H100-80"], "^fits")
        out = self.answer(GENEVAL, "--dry-run", model__precision="fp32")
        self.assertIn("in fp32, 50.68 GiB", out)

    def test_full_fine_tuning(self):
        out = self.answer(GENEVAL, "--dry-run", lora__rank=0)
        self.assertIn("trained: all 20430.40 M parameters; passes read them in bf16", out)
        verdicts = self.verdicts(out, "trainer")
        self.assertEqual(verdicts["H200-141"], "does not fit; it does with train/shard_weights=true")
        advised = r"^does not fit; it does with train/shard_weights=true ranks/trainers=\d+$"
        self.assertRegex(verdicts["H100-80"], advised)
        for device, verdict in verdicts.items():  # the advice is true
            advice = dict(word.split("=") for word in verdict.split(" with ")[1].split())
            out = self.answer(GENEVAL, "--dry-run", lora__rank=0, **advice)
            self.assertRegex(self.verdicts(out, "trainer")[device], "^fits")

    def test_a_run_needs_the_weights(self):
        result = run([GENEVAL, "-d", self.folder / "run"], {"ranks/trainers": 1})
        self.assert_refused(result, "transformer", "safetensors")


if __name__ == "__main__":
    unittest.main()
