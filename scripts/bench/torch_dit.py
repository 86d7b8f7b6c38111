"""The Qwen-Image transformer in plain PyTorch, tuned the way one would write it for RL: the yardstick of bench.sh.

Same mathematics and checkpoint as diffusers' QwenImageTransformer2DModel (docs/design.md, "Network"); `self_check`
compares the two. What it does better than a straight transcription: q, k, v in one product per stream, modulation
once per distinct sigma instead of once per sample, no text output in the last block, where nothing reads it.

Letters: B batch, S image tokens, T text tokens, d width, H heads, D head size.
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

EPS = 1e-6


def rope_angles(axes, height, width, text_length):
    """Angles [T+S, D/2] float32, text tokens first; image positions are centred, text ones follow them."""

    def axis(position, size):
        frequency = 1.0 / (10000.0 ** (torch.arange(0, size, 2, dtype=torch.float32) / size))
        return position.float()[:, None] * frequency

    rows = torch.arange(height) - (height - height // 2)
    columns = torch.arange(width) - (width - width // 2)
    row, column = rows.repeat_interleave(width), columns.repeat(height)
    image = torch.cat([axis(torch.zeros_like(row), axes[0]), axis(row, axes[1]), axis(column, axes[2])], -1)
    position = torch.arange(text_length) + max(height // 2, width // 2)
    text = torch.cat([axis(position, size) for size in axes], -1)
    return torch.cat([text, image])


def normalise(x, scale, shift):
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=EPS), 1 + scale)


class TorchDit:
    """Weights as leaf tensors in `self.w`; `velocity` is the forward pass."""

    def __init__(self, folder, height=4, width=4, text_length=7):
        folder = pathlib.Path(folder)
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.heads = self.config["num_attention_heads"]
        self.head_size = self.config["attention_head_dim"]
        angles = rope_angles(self.config["axes_dims_rope"], height, width, text_length)
        self.cos, self.sin = angles.cos(), angles.sin()
        self.frequency = 10000.0 ** (-torch.arange(128, dtype=torch.float32) / 128)
        self.w = self._fuse(load_file(folder / "diffusion_pytorch_model.safetensors"))
        for tensor in self.w.values():
            tensor.requires_grad_(True)

    def _fuse(self, loaded):
        """Joins q, k, v of each stream: [3d, d]."""
        for block in range(self.config["num_layers"]):
            prefix = f"transformer_blocks.{block}.attn."
            for stream, names in (("image", ("to_q", "to_k", "to_v")),
                                  ("text", ("add_q_proj", "add_k_proj", "add_v_proj"))):
                for part in ("weight", "bias"):
                    loaded[f"{prefix}{stream}.{part}"] = torch.cat(
                        [loaded.pop(f"{prefix}{name}.{part}") for name in names])
        return {name: tensor.float().contiguous() for name, tensor in loaded.items()}

    def parameters(self):
        return list(self.w.values())

    def linear(self, name, x):
        return F.linear(x, self.w[name + ".weight"], self.w[name + ".bias"])

    def heads_of(self, name, x, norm_q, norm_k):
        """q, k, v [B, N, H, D] of one stream, q and k normalised per head."""
        q, k, v = self.linear(name, x).unflatten(-1, (3, self.heads, self.head_size)).unbind(2)
        size = (self.head_size,)
        return F.rms_norm(q, size, self.w[norm_q], EPS), F.rms_norm(k, size, self.w[norm_k], EPS), v

    def rotate(self, x):
        """[B, N, H, D]: neighbouring pairs turned by the token's angles."""
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        cos, sin = self.cos[:, None], self.sin[:, None]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

    def mlp(self, name, x):
        return self.linear(name + ".net.2", F.gelu(self.linear(name + ".net.0.proj", x), approximate="tanh"))

    def block(self, index, image, text, act, row):
        prefix = f"transformer_blocks.{index}."
        last = index + 1 == self.config["num_layers"]
        mod_image = self.linear(prefix + "img_mod.1", act)[row].unsqueeze(1).chunk(6, -1)
        mod_text = self.linear(prefix + "txt_mod.1", act)[row].unsqueeze(1).chunk(6, -1)
        attn = prefix + "attn."
        q_text, k_text, v_text = self.heads_of(attn + "text", normalise(text, mod_text[1], mod_text[0]),
                                               attn + "norm_added_q.weight", attn + "norm_added_k.weight")
        q_image, k_image, v_image = self.heads_of(attn + "image", normalise(image, mod_image[1], mod_image[0]),
                                                  attn + "norm_q.weight", attn + "norm_k.weight")
        q = self.rotate(torch.cat([q_text, q_image], 1)).transpose(1, 2)
        k = self.rotate(torch.cat([k_text, k_image], 1)).transpose(1, 2)
        v = torch.cat([v_text, v_image], 1).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        length = text.shape[1]
        image = torch.addcmul(image, mod_image[2], self.linear(attn + "to_out.0", mixed[:, length:]))
        image = torch.addcmul(image, mod_image[5],
                              self.mlp(prefix + "img_mlp", normalise(image, mod_image[4], mod_image[3])))
        if not last:
            text = torch.addcmul(text, mod_text[2], self.linear(attn + "to_add_out", mixed[:, :length]))
            text = torch.addcmul(text, mod_text[5],
                                 self.mlp(prefix + "txt_mlp", normalise(text, mod_text[4], mod_text[3])))
        return image, text

    def velocity(self, latent, text, sigmas, row):
        """latent [B, S, 64], text [B, T, joint dim], sigmas [R] distinct noise levels, row [B] their index.

        Returns the velocity [B, S, 64].
        """
        angle = 1000.0 * sigmas[:, None] * self.frequency
        embedding = torch.cat([angle.cos(), angle.sin()], -1)
        time = "time_text_embed.timestep_embedder.linear_"
        act = F.silu(self.linear(time + "2", F.silu(self.linear(time + "1", embedding))))
        image = self.linear("img_in", latent)
        context = self.linear("txt_in", F.rms_norm(text, text.shape[-1:], self.w["txt_norm.weight"], EPS))
        for index in range(self.config["num_layers"]):
            image, context = self.block(index, image, context, act, row)
        scale, shift = self.linear("norm_out.linear", act)[row].unsqueeze(1).chunk(2, -1)
        return self.linear("proj_out", normalise(image, scale, shift))


def self_check(folder):
    """Largest difference to diffusers' class on random input, relative to the largest output."""
    from diffusers import QwenImageTransformer2DModel  # heavy, and needed here only

    model = TorchDit(folder)
    theirs = QwenImageTransformer2DModel.from_pretrained(folder)
    generator = torch.Generator().manual_seed(0)
    latent = torch.randn(3, 16, model.config["in_channels"], generator=generator)
    text = torch.randn(3, 7, model.config["joint_attention_dim"], generator=generator)
    sigmas = torch.tensor([0.1, 0.5, 1.0])
    with torch.no_grad():
        ours = model.velocity(latent, text, sigmas, torch.arange(3))
        expected = theirs(hidden_states=latent, encoder_hidden_states=text, timestep=sigmas,
                          encoder_hidden_states_mask=torch.ones(3, 7, dtype=torch.bool),
                          img_shapes=[[(1, 4, 4)]] * 3, return_dict=False)[0]
    return float((ours - expected).abs().max() / expected.abs().max())


def window_coefficients(steps, noise_level, window):
    """Rows (sigma, cx, cv, std) of x' = cx x + cv v + std noise: Flow-SDE inside the window, Euler outside."""
    sigmas = [1.0 - i / steps for i in range(steps)] + [0.0]
    rows = []
    for i, (sigma, following) in enumerate(zip(sigmas, sigmas[1:])):
        dt = following - sigma
        if i >= window:
            rows.append((sigma, 1.0, dt, 0.0))
            continue
        level = noise_level * math.sqrt(sigma / (1 - (sigmas[1] if i == 0 else sigma)))
        drift = level * level / (2 * sigma)
        rows.append((sigma, 1 + drift * dt, (1 + drift * (1 - sigma)) * dt, level * math.sqrt(-dt)))
    return torch.tensor(rows)
