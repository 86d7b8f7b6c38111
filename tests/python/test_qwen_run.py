"""The Qwen-Image input on a tiny random checkpoint of that form: trained, exported, sampled, and what is refused.

The files are what a user has: folders as diffusers saves them, a prompt file, and prompt embeddings made beforehand.
"""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import BINARY, SOURCE
from diffusers import QwenImageTransformer2DModel
from PIL import Image

INPUT = SOURCE / "inputs/qwen_image_geneval_512.ini"
TRAIN, EVAL = ["a bench", "a red car", "ein großer Hund auf einer Bank"], ["a bird", "two cats"]
MAX_PIXEL_ERROR = 2  # of 255: fp32 merging rounds, and so does the quantisation of images


def make_checkpoint(*arguments):
    command = [sys.executable, SOURCE / "scripts/make_random_checkpoint.py", "--size", "tiny", *arguments]
    subprocess.run(list(map(str, command)), check=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """model/ of two layers, train.txt, eval.txt and embeddings.safetensors."""
    folder = tmp_path_factory.mktemp("qwen")
    make_checkpoint(folder / "model", "--layers", 2, "--dtype", "f32", "--vae", "--shards", 3, "--shuffle")
    (folder / "train.txt").write_text("\n".join(TRAIN), encoding="utf-8")
    (folder / "eval.txt").write_text("\n".join(EVAL), encoding="utf-8")
    (folder / "all.txt").write_text("\n".join(TRAIN + EVAL), encoding="utf-8")
    make_checkpoint("--embeddings", folder / "embeddings.safetensors", "--prompts", folder / "all.txt")
    return folder


def settings(folder, **changed):
    """The input's, made small: section__key = value."""
    small = {
        "model__path": folder / "model", "model__precision": "fp32", "prompts__train": folder / "train.txt",
        "prompts__eval": folder / "eval.txt", "prompts__embeddings": folder / "embeddings.safetensors",
        "reward__terms": "brightness:1.0", "reward__command": "", "run__iterations": 1, "lora__rank": 4,
        "lora__alpha": 8, "sampler__height": 64, "sampler__width": 96, "group__prompts": 2, "group__images": 4,
        "explore__seeds": 6, "explore__budget": "fixed", "eval__seeds": 2, "eval__steps": 4, "train__lr": 0.02,
        "train__grad_norm": 0, "ranks__trainers": 1, "device__threads": 1,
    }
    return [f"{key.replace('__', '/')}={value}" for key, value in (small | changed).items()]


def spotlight(*arguments, ranks=0):
    launcher = [SOURCE / "scripts/mpirun.sh", "-np", ranks] if ranks else []
    command = [str(word) for word in (*launcher, BINARY, *arguments)]
    return subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, timeout=120, check=False)


def train(folder, name, ranks=0, **changed):
    run = folder / name
    result = spotlight(INPUT, "-d", run, *settings(folder, **changed), ranks=ranks)
    assert result.returncode == 0, result.stdout + result.stderr
    return run


def images(directory):
    paths = sorted(path for path in directory.glob("*.png") if path.name != "grid.png")
    return np.stack([np.asarray(Image.open(path)).astype(int) for path in paths])


@pytest.fixture(scope="module")
def trained(folder):
    return train(folder, "trained")


def test_trains_on_what_was_sampled(trained):
    row = json.loads((trained / "history.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert row["policy_ratio_first_max_dev"] == 0.0
    assert row["policy_pairs"] == 2 * 4 * 2
    assert row["optim_grad_norm"] > 0
    assert row["group_zero_spread_ratio"] == 0
    assert images(trained / "samples/step_000001").shape[1:] == (64, 96, 3)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_ranks_that_share_passes_give_the_same_bits(folder, precision):
    one = train(folder, f"one-{precision}", model__precision=precision)
    shared = train(folder, f"shared-{precision}", 5, model__precision=precision, ranks__trainers=2,
                   ranks__trainer_sp=2, ranks__explorer_sp=2)
    name = "final/lora/adapter_model.safetensors"
    assert (one / name).read_bytes() == (shared / name).read_bytes()


def test_adapter_merged_by_diffusers_draws_the_same_images(folder, trained):
    """Also the run's own last evaluation: its adapter, sampled again."""
    model = QwenImageTransformer2DModel.from_pretrained(folder / "model/transformer")
    model.load_lora_adapter(str(trained / "final/lora/pytorch_lora_weights.safetensors"), use_safetensors=True)
    model.fuse_lora()
    model.unload_lora()
    merged = folder / "merged"
    shutil.copytree(folder / "model", merged)
    shutil.rmtree(merged / "transformer")
    model.save_pretrained(merged / "transformer")
    drawn = {}
    for name, changed in (("base", {}), ("adapted", {"model__adapter": trained / "final/lora"}),
                          ("merged", {"model__path": merged})):
        result = spotlight("sample", INPUT, "-d", folder / f"sample-{name}", *settings(folder, **changed))
        assert result.returncode == 0, result.stderr
        drawn[name] = images(folder / f"sample-{name}")
    assert drawn["base"].shape == (4, 64, 96, 3)
    assert np.abs(drawn["adapted"] - drawn["merged"]).max() <= MAX_PIXEL_ERROR
    assert np.abs(drawn["adapted"] - drawn["base"]).max() > 5 * MAX_PIXEL_ERROR
    evaluated = {path.name: np.asarray(Image.open(path)) for path in (trained / "samples/step_000001").glob("0*.png")}
    assert evaluated
    for name, image in evaluated.items():
        assert np.array_equal(image, np.asarray(Image.open(folder / "sample-adapted" / name))), name


def refusal(folder, **changed):
    result = spotlight(INPUT, "-d", folder / "refused", *settings(folder, **changed))
    assert result.returncode == 2, result.stdout + result.stderr
    assert not (folder / "refused").exists()
    assert result.stderr.startswith("spotlight: ") and result.stderr.count("spotlight: ") == 1
    return result.stderr


def expect(text, *parts):
    for part in parts:
        assert str(part) in text, text


def test_prompts_without_embedding_are_named_with_the_command(folder):
    more = folder / "more.txt"
    more.write_text("\n".join([*EVAL, "a zebra", "a lion"]), encoding="utf-8")
    expect(refusal(folder, prompts__eval=more), "2 of 4 prompts", '"a zebra"', "scripts/encode_prompts.py", "--prompts",
           more, "--output", folder / "embeddings.safetensors")
    negative = {"sampler__negative_prompt": "blurry"}
    expect(refusal(folder, **negative), "blurry", "scripts/encode_prompts.py")
    missing = refusal(folder, prompts__embeddings=folder / "embedding.safetensors")
    expect(missing, "no such file", "embeddings.safetensors?", "scripts/encode_prompts.py")


@pytest.fixture
def copy(folder):
    copied = folder / "copy"
    shutil.copytree(folder / "model", copied)
    yield copied
    shutil.rmtree(copied)


def test_other_models_are_refused_by_name(folder, copy):
    path = copy / "transformer/config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"_class_name": "QwenImage21Transformer2DModel"}), encoding="utf-8")
    expect(refusal(folder, model__path=copy), path, "QwenImage21Transformer2DModel", '"QwenImageTransformer2DModel"')


def test_missing_parts_are_named(folder, copy):
    (copy / "vae/diffusion_pytorch_model.safetensors").unlink()
    expect(refusal(folder, model__path=copy), copy / "vae", "no weights of the autoencoder")
    shutil.rmtree(copy / "vae")
    expect(refusal(folder, model__path=copy), copy, "no folder vae/", "autoencoder")
    shutil.copytree(folder / "model/vae", copy / "vae")
    next((copy / "transformer").glob("*-00002-of-*.safetensors")).unlink()
    expect(refusal(folder, model__path=copy), copy / "transformer", "00002-of-00003")
