"""A full RL iteration at Qwen-Image's real width: two blocks, 256 pixels, bf16, LoRA of rank 64, guidance, real VAE.

Needs 2 GB of disk below the folder of temporary files for as long as it runs, and 4 GB of memory. Prints times and the
peak of the process's memory, which must be what the dry run says, within a fifth.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import BINARY, SOURCE
from PIL import Image
from safetensors import safe_open

INPUT = SOURCE / "inputs/qwen_image_geneval_512.ini"
FREE = 3 << 30  # bytes
SETTINGS = {
    "reward/terms": "brightness:1.0", "reward/command": "", "run/iterations": 1, "sampler/height": 256,
    "sampler/width": 256, "sampler/steps": 4, "sampler/window_last": 1, "sampler/batch": 4, "group/prompts": 2,
    "group/images": 2, "explore/seeds": 0, "eval/seeds": 1, "eval/steps": 2, "eval/every": 0, "train/updates": 1,
    "train/micro_batch": 4, "ranks/trainers": 1, "device/threads": 2,
}
MODULES = ("attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0", "attn.add_q_proj", "attn.add_k_proj",
           "attn.add_v_proj", "attn.to_add_out", "img_mlp.net.0.proj", "img_mlp.net.2", "txt_mlp.net.0.proj",
           "txt_mlp.net.2")


def make_checkpoint(*arguments):
    command = [sys.executable, SOURCE / "scripts/make_random_checkpoint.py", *arguments]
    subprocess.run(list(map(str, command)), check=True)


@pytest.fixture
def folder(tmp_path):
    free = shutil.disk_usage(tmp_path).free
    if free < FREE:
        pytest.skip(f"{tmp_path}: {free >> 20} MiB are free, {FREE >> 20} are needed")
    make_checkpoint(tmp_path / "model", "--layers", 2, "--vae", "--shuffle", "--shards", 3)
    (tmp_path / "train.txt").write_text("a bench\na red car\n", encoding="utf-8")
    (tmp_path / "eval.txt").write_text("a bird\n", encoding="utf-8")
    (tmp_path / "all.txt").write_text("a bench\na red car\na bird\n", encoding="utf-8")
    make_checkpoint("--embeddings", tmp_path / "embeddings.safetensors", "--prompts", tmp_path / "all.txt")
    yield tmp_path
    shutil.rmtree(tmp_path)


def run(folder, *options):
    """The output, and the peak of the process's memory in MiB."""
    paths = {"model/path": folder / "model", "prompts/train": folder / "train.txt",
             "prompts/eval": folder / "eval.txt", "prompts/embeddings": folder / "embeddings.safetensors"}
    words = [BINARY, INPUT, "-d", folder / "run", *options, *(f"{k}={v}" for k, v in (SETTINGS | paths).items())]
    with subprocess.Popen(list(map(str, words)), cwd=SOURCE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True) as process:
        out = process.stdout.read()
        _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, out
    return out, usage.ru_maxrss / 1024


def test_one_iteration_of_the_real_width(folder):
    planned = float(re.search(r"^  all +.* = ([\d.]+)$", run(folder, "--dry-run")[0], re.M)[1])
    began = time.monotonic()
    out, peak = run(folder)
    print(f"\none iteration, two blocks of width 3072, 256 pixels: {time.monotonic() - began:.0f} s")
    print(f"peak of memory {peak:.0f} MiB, planned {planned:.0f} MiB")
    print("\n".join(line for line in out.splitlines() if re.match(r"(rollout|evaluation|training) +[\d.]+ ", line)))
    assert abs(peak / planned - 1) < 0.2

    rows = [json.loads(line) for line in (folder / "run/history.jsonl").read_text(encoding="utf-8").splitlines()]
    assert rows[0]["policy_pairs"] == 2 * 2 * 2
    assert rows[0]["policy_ratio_first_max_dev"] == 0.0
    assert rows[0]["optim_grad_norm"] > 0
    assert rows[0]["group_zero_spread_ratio"] == 0
    assert 0 < rows[0]["reward_mean"] < 1

    before, after = (np.asarray(Image.open(folder / f"run/samples/step_00000{step}/00000_00.png")) for step in (0, 1))
    assert before.shape == (256, 256, 3)
    assert before.std() > 1
    assert not np.array_equal(before, after)

    with safe_open(folder / "run/final/lora/pytorch_lora_weights.safetensors", "np") as file:
        names = {f"transformer.transformer_blocks.{block}.{module}.lora_{side}.weight"
                 for block in range(2) for module in MODULES for side in "AB"}
        assert set(file.keys()) == names
        moved = file.get_tensor("transformer.transformer_blocks.1.attn.to_q.lora_B.weight")
    assert moved.shape == (3072, 64)
    assert 0 < np.abs(moved).max() < 1e-2
