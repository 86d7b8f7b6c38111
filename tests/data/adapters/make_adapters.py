"""Makes the adapters of this folder, and what they do to the small model of ../golden/tiny.

    python make_adapters.py            with torch, diffusers, peft and safetensors; writes beside this file

All numbers are random. Three adapters with rank, alpha and layers of their own, each written by the library itself:
    peft/       PeftModel.save_pretrained   r 2, alpha 6 (of img_mlp.net.2: 1): all of attention, the image's MLP
    pipeline/   QwenImagePipeline.save_lora_weights   r 4, alpha 8, BF16: attention of the image
    model/      save_lora_adapter of the model   r 3 (from a rank_pattern), alpha 4.5: the text's MLP
expected.safetensors holds, for each of them as <name>:
    <name>.probe.<module> [out]     what the layer's change of W, as PEFT computes it, makes of probe.<in> [in]
    <name>.output [B, S, 4 * out]   the velocity of the adapted model for hidden_states, encoder_hidden_states,
                                    encoder_hidden_states_mask, timestep, img_shapes in the same file
and `output`, the velocity without adapter.
"""

import pathlib
import shutil

import torch
from diffusers import QwenImagePipeline, QwenImageTransformer2DModel
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from peft.utils import get_peft_model_state_dict
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
BASE = HERE.parent / "golden/tiny"
IMAGE = ["attn.to_q", "attn.to_k", "attn.to_v", "attn.to_out.0"]
TEXT = ["attn.add_q_proj", "attn.add_k_proj", "attn.add_v_proj", "attn.to_add_out"]
TEXT_MLP = ["txt_mlp.net.0.proj", "txt_mlp.net.2"]
IMAGE_MLP = ["img_mlp.net.0.proj", "img_mlp.net.2"]


def inputs():
    torch.manual_seed(7)
    mask = torch.ones(2, 5, dtype=torch.int64)
    mask[1, 3:] = 0
    return {
        "hidden_states": torch.randn(2, 12, 16),
        "encoder_hidden_states": torch.randn(2, 5, 48) * mask[..., None],
        "encoder_hidden_states_mask": mask,
        "timestep": torch.tensor([0.9, 0.35]),
        "img_shapes": torch.tensor([[1, 3, 4]]),
        **{f"probe.{width}": torch.randn(width) for width in (64, 256)},
    }


@torch.no_grad()
def velocity(model, case):
    return model(
        hidden_states=case["hidden_states"],
        encoder_hidden_states=case["encoder_hidden_states"],
        encoder_hidden_states_mask=case["encoder_hidden_states_mask"].bool(),
        timestep=case["timestep"],
        img_shapes=[[tuple(shape) for shape in case["img_shapes"].tolist()]] * 2,
        return_dict=False,
    )[0]


@torch.no_grad()
def randomize(model, seed, dtype=torch.float32):
    """Random A and B; in BF16 rounded, so that the file loses nothing."""
    torch.manual_seed(seed)
    for name, parameter in model.named_parameters():
        if ".lora_" in name:
            parameter.copy_((0.1 * torch.randn(parameter.shape)).to(dtype))


@torch.no_grad()
def expectation(model, name, case):
    result = {f"{name}.output": velocity(model, case)}
    for module, layer in model.named_modules():
        if isinstance(layer, LoraLayer):
            change = layer.get_delta_weight("default")
            module = module.removeprefix("base_model.model.")
            result[f"{name}.probe.{module}"] = change @ case[f"probe.{change.shape[1]}"]
    return result


def base():
    return QwenImageTransformer2DModel.from_pretrained(BASE).eval()


def main():
    case = inputs()
    expected = {**case, "output": velocity(base(), case)}

    config = LoraConfig(r=2, lora_alpha=6, alpha_pattern={"img_mlp.net.2": 1}, target_modules=IMAGE + TEXT + IMAGE_MLP)
    model = get_peft_model(base(), config).eval()
    randomize(model, 1)
    expected |= expectation(model, "peft", case)
    model.peft_config["default"].base_model_name_or_path = "tiny"  # not the folder of this machine
    model.save_pretrained(HERE / "peft")
    (HERE / "peft/README.md").unlink()
    assert isinstance(PeftModel.from_pretrained(base(), str(HERE / "peft")), PeftModel)

    model = base()
    model.add_adapter(LoraConfig(r=4, lora_alpha=8, target_modules=IMAGE))
    randomize(model, 2, torch.bfloat16)
    expected |= expectation(model, "pipeline", case)
    tensors = {name: tensor.bfloat16() for name, tensor in get_peft_model_state_dict(model).items()}
    metadata = model.peft_config["default"].to_dict()
    metadata["target_modules"] = sorted(metadata["target_modules"])
    QwenImagePipeline.save_lora_weights(HERE / "pipeline", tensors, transformer_lora_adapter_metadata=metadata)

    model = base()
    model.add_adapter(LoraConfig(r=1, lora_alpha=4.5, rank_pattern={r"txt_mlp\.net\..*": 3}, target_modules=TEXT_MLP))
    randomize(model, 3)
    expected |= expectation(model, "model", case)
    shutil.rmtree(HERE / "model", ignore_errors=True)
    model.save_lora_adapter(HERE / "model")

    save_file({name: tensor.contiguous() for name, tensor in expected.items()}, HERE / "expected.safetensors")
    for path in HERE.rglob("*.safetensors"):
        path.chmod(0o644)


if __name__ == "__main__":
    main()
