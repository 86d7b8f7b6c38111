"""The random checkpoint is one that diffusers loads, with exactly its names and shapes.

The published sizes: 20,430,401,088 parameters in 1,933 tensors (transformer), 126,892,531 in 194 (vae).
"""

import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from diffusers import AutoencoderKLQwenImage, FlowMatchEulerDiscreteScheduler, QwenImageTransformer2DModel
from safetensors import safe_open
from safetensors.torch import load_file

SCRIPT = pathlib.Path(os.environ["SPOTLIGHT_SOURCE"]) / "scripts/make_random_checkpoint.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_random_checkpoint", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(*arguments):
    result = subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True,
                            check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def shapes_of(model):
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def load_strictly(kind, folder):
    model, report = kind.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    return model.eval()


def test_counts_the_published_model(script):
    assert write("--count", "--layers", 60) == "20430401088 parameters in 1933 tensors\n"
    with torch.device("meta"):
        two_layers = QwenImageTransformer2DModel(num_layers=2)
        vae = AutoencoderKLQwenImage()
    assert script.transformer_shapes(script.SIZES["real"], 2) == shapes_of(two_layers)
    assert script.vae_shapes(96) == shapes_of(vae)
    assert sum(map(math.prod, script.vae_shapes(96).values())) == 126892531


@pytest.mark.parametrize("dtype, type_of", [("bf16", torch.bfloat16), ("f16", torch.float16), ("f32", torch.float32)])
def test_diffusers_loads_it(tmp_path, dtype, type_of):
    write(tmp_path, "--size", "tiny", "--layers", 3, "--dtype", dtype, "--shards", 3, "--vae", "--shuffle")
    files = sorted((tmp_path / "transformer").glob("*.safetensors"))
    assert len(files) == 3
    stored = {name: tensor for file in files for name, tensor in load_file(file).items()}
    assert {tensor.dtype for tensor in stored.values()} == {type_of}
    model = load_strictly(QwenImageTransformer2DModel, tmp_path / "transformer")
    assert shapes_of(model) == {name: tuple(tensor.shape) for name, tensor in stored.items()}
    index = json.loads((tmp_path / "transformer/diffusion_pytorch_model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in stored.values())
    assert index["weight_map"].keys() == stored.keys()
    load_strictly(AutoencoderKLQwenImage, tmp_path / "vae")
    scheduler = FlowMatchEulerDiscreteScheduler.from_pretrained(tmp_path / "scheduler")
    assert scheduler.config.shift_terminal == 0.02


def test_bytes_depend_on_the_seed_alone(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write(tmp_path / name, "--size", "tiny", "--seed", seed)
    first, again, other = ((tmp_path / name / "transformer/diffusion_pytorch_model.safetensors").read_bytes()
                           for name in "abc")
    assert first == again
    assert first != other


def test_bf16_rounds_to_nearest_even(script):
    data = script.generator(0, "x").standard_normal(10000, dtype=np.float32)
    data[:2] = [1.00390625, 1.01171875]  # halfway: down to even, up to even
    bits = torch.from_numpy(data.copy()).to(torch.bfloat16).view(torch.int16).numpy().tobytes()
    assert script.encoded(data, "bf16") == bits


def test_activations_stay_of_order_one(tmp_path):
    """The residual streams after the last of 60 blocks, and the velocity."""
    write(tmp_path, "--size", "tiny", "--layers", 60, "--dtype", "f32")
    model = load_strictly(QwenImageTransformer2DModel, tmp_path / "transformer")
    streams = []
    model.transformer_blocks[-1].register_forward_hook(lambda _module, _inputs, outputs: streams.extend(outputs))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        velocity = model(
            hidden_states=torch.randn(1, 16, 64, generator=generator),
            encoder_hidden_states=torch.randn(1, 5, 64, generator=generator), timestep=torch.tensor([0.5]),
            img_shapes=[[(1, 4, 4)]], return_dict=False)[0]
    for tensor in (*streams, velocity):
        assert 0.3 < tensor.std() < 5


def test_embeddings_have_the_agreed_format(tmp_path, script):
    texts = [" ", "a photo of a bench", "ein größerer Hund"]
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "a photo of a bench"}\nein größerer Hund\n\na photo of a bench\n', encoding="utf-8")
    write("--size", "tiny", "--embeddings", tmp_path / "e.safetensors", "--prompts", prompts)
    assert script.prompt_key("foobar") == "85944171f73967e8"  # FNV-1a's published vector
    with safe_open(tmp_path / "e.safetensors", "pt") as file:
        assert file.metadata()["format"] == "spotlight-embeddings"
        assert file.metadata()["version"] == "1"
        assert set(file.keys()) == {script.prompt_key(text) for text in texts}
        assert file.get_tensor(script.prompt_key("ein größerer Hund")).shape == (8, 64)
        assert file.get_tensor(script.prompt_key(" ")).dtype == torch.bfloat16


def test_refuses_what_does_not_fit(tmp_path):
    result = subprocess.run([sys.executable, str(SCRIPT), str(tmp_path), "--head-dim", "20"], capture_output=True,
                            text=True, check=False)
    assert result.returncode == 2
    assert "--head-dim 20: give --axes" in result.stderr
