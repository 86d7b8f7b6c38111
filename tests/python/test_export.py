"""What a run writes under final/ is read by diffusers and PEFT, and means there what it meant in the program.

Two proofs each for full weights and LoRA: the libraries load the files without a missing or unexpected tensor, and the
program, started again from what the library holds after loading (for LoRA: after the library merged it), draws the
same evaluation images as the run drew at its end.
"""

import json

import h5py
import numpy as np
import pytest
import torch
from conftest import BASE, SOURCE
from diffusers import QwenImagePipeline, QwenImageTransformer2DModel
from safetensors import safe_open
from safetensors.torch import load_file

MAX_PIXEL_ERROR = 2  # of 255: fp32 merging rounds, and so does the quantisation of images


@pytest.fixture(scope="module")
def reference():
    """Eight samples of the base: the latents at sigma = 1, the token ids, and the velocities."""
    return load_file(SOURCE / "tests/data/tiny-shapes/reference.safetensors")


@torch.no_grad()
def velocity(model, reference):
    table = load_file(BASE / "text_embedding.safetensors")["embed_tokens.weight"]
    latent = reference["a0.0.noise"][0]
    text = table[reference["token_ids"].long()]
    return model(hidden_states=latent, encoder_hidden_states=text, timestep=torch.ones(len(latent)),
                 encoder_hidden_states_mask=torch.ones(text.shape[:2], dtype=torch.bool),
                 img_shapes=[[(1, 4, 4)]] * len(latent), return_dict=False)[0]


def load(folder):
    model, report = QwenImageTransformer2DModel.from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"], report
    return model.eval()


def images(run, step):
    """Evaluation images of the first (0) or last (-1) recorded step, uint8 [n, h, w, 3] as integers."""
    with h5py.File(run / "run.h5") as file:
        names = sorted(name for name in file["samples"] if not name.endswith("captions"))
        return file["samples"][names[step]][...].astype(int)


def expect_same_images(run, again):
    last, first = images(run, -1), images(again, 0)
    assert last.shape == first.shape
    assert np.abs(last - first).max() <= MAX_PIXEL_ERROR
    # The base's images are others: else this comparison would prove nothing about the weights.
    assert np.abs(last - images(run, 0)).max() > 10 * MAX_PIXEL_ERROR


def test_shipped_base_gives_the_reference_velocities(reference):
    torch.testing.assert_close(velocity(load(BASE), reference), reference["v_t1"], rtol=0, atol=1e-4)


def test_full_weights_load_in_diffusers(full_run, reference):
    folder = full_run / "final/transformer"
    model = load(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert config["_class_name"] == "QwenImageTransformer2DModel"
    trained = load_file(folder / "diffusion_pytorch_model.safetensors")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, trained[name]), name
    change = (velocity(model, reference) - reference["v_t1"]).abs().max()
    assert 1e-3 < change < 10


def test_full_weights_draw_the_same_images(full_run, run_with_weights):
    again = run_with_weights(full_run / "final/transformer/diffusion_pytorch_model.safetensors")
    expect_same_images(full_run, again)


def lora_file(run):
    return run / "final/lora/pytorch_lora_weights.safetensors"


def merged_by_hand(run):
    """The base's tensors with B A added: alpha / r is folded into B (docs: LoRA files)."""
    weights = load_file(BASE / "diffusion_pytorch_model.safetensors")
    adapter = load_file(lora_file(run))
    for name, a in adapter.items():
        if name.endswith(".lora_A.weight"):
            module = name.removeprefix("transformer.").removesuffix(".lora_A.weight")
            weights[module + ".weight"] += adapter[name.replace("lora_A", "lora_B")] @ a
    return weights


def test_lora_metadata_says_that_the_scale_is_folded(lora_run):
    with safe_open(lora_file(lora_run), "pt") as file:
        metadata = file.metadata()
        names = list(file.keys())
    adapter = json.loads(metadata["lora_adapter_metadata"])
    assert adapter["transformer.r"] == adapter["transformer.lora_alpha"] == 4
    assert "to_out.0" in " ".join(adapter["transformer.target_modules"])
    assert len(names) == 4 * 12 * 2
    assert all(name.startswith("transformer.transformer_blocks.") for name in names)


@pytest.mark.parametrize("loader", ["model", "pipeline"])
def test_lora_loads_in_diffusers(lora_run, reference, loader):
    model = load(BASE)
    if loader == "model":
        model.load_lora_adapter(str(lora_file(lora_run)), use_safetensors=True)
    else:
        state, metadata = QwenImagePipeline.lora_state_dict(str(lora_file(lora_run).parent), return_lora_metadata=True)
        QwenImagePipeline.load_lora_into_transformer(state, model, metadata=metadata)
    expected = load(BASE)
    expected.load_state_dict(merged_by_hand(lora_run), strict=True)
    adapted = velocity(model, reference)
    torch.testing.assert_close(adapted, velocity(expected, reference), rtol=0, atol=1e-4)
    assert (adapted - reference["v_t1"]).abs().max() > 1e-3


def test_lora_merged_by_peft_draws_the_same_images(lora_run, run_with_weights, tmp_path):
    model = load(BASE)
    model.load_lora_adapter(str(lora_file(lora_run)), use_safetensors=True)
    model.fuse_lora()
    model.unload_lora()
    model.save_pretrained(tmp_path)
    expect_same_images(lora_run, run_with_weights(tmp_path / "diffusion_pytorch_model.safetensors"))
