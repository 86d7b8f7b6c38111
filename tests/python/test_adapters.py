"""Adapters between this program and the libraries.

What a run exports loads in PEFT and diffusers and changes the velocity by the same numbers as B A added to the weights.
The adapters of tests/data/adapters, which the C++ tests read, still mean to the installed libraries what is written
there. Together with tests/io/lora_file_test.cpp that is import and export of both forms.
"""

import pytest
import torch
from conftest import SOURCE
from diffusers import QwenImagePipeline, QwenImageTransformer2DModel
from peft import PeftModel
from safetensors.torch import load_file, save_file
from test_export import BASE, load, lora_file, merged_by_hand, reference, velocity  # noqa: F401 (a fixture)

ADAPTERS = SOURCE / "tests/data/adapters"
TINY = SOURCE / "tests/data/golden/tiny"


def through_peft(model, folder):
    return PeftModel.from_pretrained(model, str(folder)).eval()


def through_model(model, folder):
    model.load_lora_adapter(str(folder / "pytorch_lora_weights.safetensors"), use_safetensors=True, prefix=None)
    return model


def through_pipeline(model, folder):
    state, metadata = QwenImagePipeline.lora_state_dict(
        str(folder), weight_name="pytorch_lora_weights.safetensors", return_lora_metadata=True
    )
    QwenImagePipeline.load_lora_into_transformer(state, model, metadata=metadata)
    return model


def test_exported_peft_form_changes_the_velocity_as_the_merged_weights_do(lora_run, reference):  # noqa: F811
    adapted = velocity(through_peft(load(BASE), lora_run / "final/lora"), reference)
    expected = load(BASE)
    expected.load_state_dict(merged_by_hand(lora_run), strict=True)
    torch.testing.assert_close(adapted, velocity(expected, reference), rtol=0, atol=1e-4)
    assert (adapted - reference["v_t1"]).abs().max() > 1e-3


def test_both_exported_forms_hold_the_same_tensors(lora_run):
    peft = load_file(lora_run / "final/lora/adapter_model.safetensors")
    for name, tensor in load_file(lora_file(lora_run)).items():
        assert torch.equal(peft.pop(name.replace("transformer.", "base_model.model.", 1)), tensor)
    assert not peft


def test_exported_scale_needs_no_metadata(lora_run, reference, tmp_path):  # noqa: F811
    """Loaders that do not read the metadata take scale 1, which is what is meant."""
    save_file(load_file(lora_file(lora_run)), tmp_path / "pytorch_lora_weights.safetensors")
    bare = velocity(through_pipeline(load(BASE), tmp_path), reference)
    whole = velocity(through_pipeline(load(BASE), lora_run / "final/lora"), reference)
    assert torch.equal(bare, whole)


@torch.no_grad()
@pytest.mark.parametrize("name, loader",
                         [("peft", through_peft), ("pipeline", through_pipeline), ("model", through_model)])
def test_shipped_adapters_give_the_recorded_velocities(name, loader):
    expected = load_file(ADAPTERS / "expected.safetensors")
    model = loader(QwenImageTransformer2DModel.from_pretrained(TINY).eval(), ADAPTERS / name)
    output = model(
        hidden_states=expected["hidden_states"],
        encoder_hidden_states=expected["encoder_hidden_states"],
        encoder_hidden_states_mask=expected["encoder_hidden_states_mask"].bool(),
        timestep=expected["timestep"],
        img_shapes=[[tuple(expected["img_shapes"][0].tolist())]] * 2,
        return_dict=False,
    )[0]
    assert (output - expected[f"{name}.output"]).norm() < 8e-6 * output.norm()
    assert (output - expected["output"]).norm() > 1e-3 * output.norm()
