"""Every mistake gets one message that names the place and what to do, before any work, and exit code 2."""

import json
import os
import shutil
import struct
import unittest

import spotlight_run as sr
from spotlight_run import INPUT, TINY, RunTest, run

MODEL = sr.SOURCE / "inputs/models/tiny-shapes"


def read_safetensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def write_safetensors(path, header, body):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


class BadInput(RunTest):
    def refused(self, settings, *texts, ranks=0, arguments=(INPUT,)):
        """--check says the same as the run, and neither leaves a run directory."""
        directory = self.folder / "run"
        settings = dict(TINY, **settings)
        self.assert_refused(run([*arguments, "-d", directory], settings, ranks), *texts)
        self.assertFalse((directory / "run.h5").exists())

    def model(self):
        """A copy of the model to damage, and its weights."""
        folder = self.folder / "model"
        shutil.copytree(MODEL, folder)
        return folder, folder / "diffusion_pytorch_model.safetensors"

    def test_missing_weights(self):
        folder, path = self.model()
        path.unlink()
        for ranks in (0, 4):
            self.refused({"model/path": folder}, str(folder), "safetensors", ranks=ranks)

    def test_truncated_weights(self):
        folder, path = self.model()
        path.write_bytes(path.read_bytes()[:-1000])
        for ranks in (0, 4):
            self.refused({"model/path": folder}, str(path), "bytes", ranks=ranks)

    def test_header_larger_than_the_file(self):
        folder, path = self.model()
        path.write_bytes(struct.pack("<Q", 1 << 50) + path.read_bytes()[8:])
        self.refused({"model/path": folder}, str(path), "header")

    def test_other_shapes_are_summed_up(self):
        folder, path = self.model()
        config = json.loads((folder / "config.json").read_text())
        config["num_attention_heads"] = 2
        (folder / "config.json").write_text(json.dumps(config))
        result = run([INPUT, "-d", self.folder / "run"], {"model/path": folder})
        self.assert_refused(result, str(folder), "of another shape", "expected")
        self.assertLess(len(result.err.splitlines()), 4, str(result))

    def test_weights_that_are_not_numbers(self):
        folder, path = self.model()
        header, body = read_safetensors(path)
        begin = header["img_in.weight"]["data_offsets"][0]
        size = {"F32": 4, "BF16": 2, "F16": 2}[header["img_in.weight"]["dtype"]]
        write_safetensors(path, header, body[:begin] + b"\xff" * size + body[begin + size :])
        self.refused({"model/path": folder}, str(folder), "img_in.weight is not finite")

    def test_unknown_model_class(self):
        folder, _ = self.model()
        config = json.loads((folder / "config.json").read_text())
        config["_class_name"] = "UNet2DConditionModel"
        (folder / "config.json").write_text(json.dumps(config))
        self.refused({"model/path": folder}, "config.json", "UNet2DConditionModel", "QwenImageTransformer2DModel")

    def test_missing_model(self):
        self.refused({"model/path": MODEL.parent / "tiny-shape"}, "no such folder", "did you mean", "tiny-shapes")

    def test_prompts_that_are_not_json(self):
        prompts = self.folder / "train.jsonl"
        prompts.write_text('{"tag": "colors", "include": [{"class": "heart", "count": 1}], "prompt": "a photo"}\n{"tag"\n')
        for ranks in (0, 4):
            self.refused({"prompts/train": prompts}, f"{prompts}:2", ranks=ranks)

    def test_prompts_without_what_the_reward_needs(self):
        prompts = self.folder / "train.txt"
        prompts.write_text("a photo of a heart\n")
        self.refused({"prompts/train": prompts}, "geneval_mix", "include", f"{prompts}:1")

    def test_missing_detector(self):
        folder, _ = self.model()
        (folder / "detector.safetensors").unlink()
        self.refused({"model/path": folder}, "detector", str(folder))

    def test_word_that_the_model_does_not_know(self):
        prompts = self.folder / "train.jsonl"
        prompts.write_text('{"include": [{"class": "heart", "count": 1}], "prompt": "a photo of a zeppelin"}\n')
        self.refused({"prompts/train": prompts}, f"{prompts}:1", "zeppelin")

    def test_impossible_batches(self):
        self.refused({"train/updates": 1000}, "train/updates (command line) = 1000", "only 16")
        self.refused({"explore/seeds": 3}, "explore/seeds (command line) = 3", "group/images")
        self.refused({"sampler/window_size": 9}, "sampler/window_size (command line) = 9", "make the window smaller")

    def test_more_trainers_than_ranks(self):
        self.refused({"ranks/trainers": 4}, "needs 5 ranks", "mpirun -np 5", ranks=4)
        self.refused({"ranks/trainers": 2}, "needs 3 ranks")

    def test_typing_errors(self):
        self.refused({"train/learning_rat": 1}, "train/learning_rat")
        self.refused({"train/updatess": 1}, "did you mean", "updates")
        self.refused({"trian/lr": 1}, "did you mean", "train")
        self.refused({"train/lr": "fast"}, "train/lr", "fast", ranks=4)
        text = INPUT.read_text() + "[train]\nupdatess = 3\n"
        copy = self.folder / "input.ini"
        copy.write_text(text)
        line = text.count("\n")
        self.refused({}, f"{copy}:{line}", "updatess", "did you mean", arguments=(copy,))

    def test_missing_input(self):
        self.refused({}, "genevl.ini", arguments=("inputs/genevl.ini",))
        self.refused({}, "genevl.ini", arguments=("inputs/genevl.ini",), ranks=4)

    def test_directory_that_cannot_be_made(self):
        (self.folder / "file").write_text("")
        for ranks in (0, 4):
            result = run([INPUT, "-d", self.folder / "file/run"], TINY, ranks)
            self.assert_refused(result, "run/directory", "cannot be made")

    def test_folder_that_only_one_rank_sees(self):
        # The last rank cannot read the prompts: the message comes from there.
        prompts = self.folder / "train.jsonl"
        shutil.copy(sr.SOURCE / "inputs/prompts/shapes_train.jsonl", prompts)
        hidden = self.folder / "hidden.jsonl"
        script = self.folder / "rank.sh"
        script.write_text(
            "#!/bin/sh\n"
            f'if [ "$OMPI_COMM_WORLD_RANK" = 2 ]; then set -- "$@" prompts/train={hidden}; fi\n'
            f'exec "{sr.BINARY}" "$@"\n'
        )
        script.chmod(0o755)
        words = sr.command([INPUT, "-d", self.folder / "run"], TINY, 3)
        words[words.index(sr.BINARY)] = str(script)
        result = sr.wait(sr.start(words))
        self.assert_refused(result, "rank 2", str(hidden))

    def test_plain_mpirun(self):
        mpirun = os.environ.get("SPOTLIGHT_MPIRUN", "mpirun")
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        words = [mpirun, *root, "--oversubscribe", "-np", "2", sr.BINARY, str(INPUT), "-d", str(self.folder / "run")]
        environment = {name: value for name, value in os.environ.items() if "MCA" not in name}
        result = sr.wait(sr.start(words, env=environment))
        self.assertNotEqual(result.code, 0, str(result))
        self.assertEqual(result.err.count("start it with scripts/mpirun.sh"), 1, str(result))


if __name__ == "__main__":
    unittest.main()
