#!/usr/bin/env python3
"""Writes a Qwen-Image checkpoint of random weights, true in names and shapes, for tests and benchmarks.

    make_random_checkpoint.py OUTPUT [--layers 2] [--size real|tiny] [--dtype bf16|f16|f32] [--shards 1] [--vae]
    make_random_checkpoint.py --count [--layers 60]

Output: OUTPUT/model_index.json, scheduler/scheduler_config.json, transformer/ (config.json, shards, index), with --vae
also vae/. All as diffusers lays them out and loads them. --embeddings FILE --prompts FILE writes random prompt
embeddings for the lines (or "prompt" fields of JSON lines) of the prompts file and for a single space, the negative
prompt, in the format of scripts/encode_prompts.py. --count prints parameters and tensors and writes nothing.

Weights: matrices N(0, gain^2/fan_in), gain 1, except that what writes to a residual stream has gain 1/sqrt(2 layers)
and modulation 0.5, so that activations stay of order one through any number of layers; norms N(1, 0.1^2), biases
N(0, 0.05^2). The same seed gives the same bytes for the same options; a tensor's values depend on seed and name only.
Needs numpy; memory is that of one tensor. Exit code 2 and one message for options that do not fit.
"""

import argparse
import json
import math
import pathlib
import struct
import sys
import zlib

import numpy as np

SIZES = {
    "real": {"heads": 24, "head_dim": 128, "text_width": 3584, "in_channels": 64, "out_channels": 16, "base_dim": 96},
    "tiny": {"heads": 4, "head_dim": 24, "text_width": 64, "in_channels": 64, "out_channels": 16, "base_dim": 8},
}
AXES = {128: [16, 56, 56], 24: [4, 10, 10]}
DTYPES = {"bf16": ("BF16", 2), "f16": ("F16", 2), "f32": ("F32", 4)}
STEM = "diffusion_pytorch_model"
LATENTS_MEAN = [-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508,
                0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921]
LATENTS_STD = [2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
               3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160]
SCHEDULER = {
    "_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 1.0,
    "use_dynamic_shifting": True, "base_shift": 0.5, "max_shift": 0.9, "base_image_seq_len": 256,
    "max_image_seq_len": 8192, "invert_sigmas": False, "shift_terminal": 0.02, "use_karras_sigmas": False,
    "use_exponential_sigmas": False, "use_beta_sigmas": False, "time_shift_type": "exponential",
    "stochastic_sampling": False,
}


def linear(name, out_width, in_width):
    return {f"{name}.weight": (out_width, in_width), f"{name}.bias": (out_width,)}


def transformer_shapes(size, layers):
    """Name -> shape of every tensor of QwenImageTransformer2DModel."""
    width = size["heads"] * size["head_dim"]
    shapes = linear("time_text_embed.timestep_embedder.linear_1", width, 256)
    shapes |= linear("time_text_embed.timestep_embedder.linear_2", width, width)
    shapes["txt_norm.weight"] = (size["text_width"],)
    shapes |= linear("img_in", width, size["in_channels"]) | linear("txt_in", width, size["text_width"])
    for layer in range(layers):
        block = f"transformer_blocks.{layer}"
        for stream in ("img", "txt"):
            shapes |= linear(f"{block}.{stream}_mod.1", 6 * width, width)
            shapes |= linear(f"{block}.{stream}_mlp.net.0.proj", 4 * width, width)
            shapes |= linear(f"{block}.{stream}_mlp.net.2", width, 4 * width)
        for part in ("to_q", "to_k", "to_v", "to_out.0", "add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"):
            shapes |= linear(f"{block}.attn.{part}", width, width)
        for part in ("norm_q", "norm_k", "norm_added_q", "norm_added_k"):
            shapes[f"{block}.attn.{part}.weight"] = (size["head_dim"],)
    shapes |= linear("norm_out.linear", 2 * width, width)
    return shapes | linear("proj_out", 4 * size["out_channels"], width)


def conv(name, out_channels, in_channels, *kernel):
    return {f"{name}.weight": (out_channels, in_channels, *kernel), f"{name}.bias": (out_channels,)}


def resnet(name, in_channels, out_channels):
    shapes = {f"{name}.norm1.gamma": (in_channels, 1, 1, 1)} | conv(f"{name}.conv1", out_channels, in_channels, 3, 3, 3)
    shapes |= {f"{name}.norm2.gamma": (out_channels, 1, 1, 1)}
    shapes |= conv(f"{name}.conv2", out_channels, out_channels, 3, 3, 3)
    if in_channels != out_channels:
        shapes |= conv(f"{name}.conv_shortcut", out_channels, in_channels, 1, 1, 1)
    return shapes


def middle(name, channels):
    attention = f"{name}.attentions.0"
    shapes = {f"{attention}.norm.gamma": (channels, 1, 1)} | conv(f"{attention}.to_qkv", 3 * channels, channels, 1, 1)
    shapes |= conv(f"{attention}.proj", channels, channels, 1, 1)
    return shapes | resnet(f"{name}.resnets.0", channels, channels) | resnet(f"{name}.resnets.1", channels, channels)


def vae_shapes(base, latent=16):
    """Name -> shape of every tensor of AutoencoderKLQwenImage with dim_mult [1,2,4,4] and 2 residual blocks a level."""
    levels = [base, 2 * base, 4 * base, 4 * base]
    shapes = conv("encoder.conv_in", base, 3, 3, 3, 3)
    index, channels = 0, base
    for level, width in enumerate(levels):
        for _ in range(2):
            shapes |= resnet(f"encoder.down_blocks.{index}", channels, width)
            index, channels = index + 1, width
        if level < 3:
            shapes |= conv(f"encoder.down_blocks.{index}.resample.1", width, width, 3, 3)
            if level > 0:
                shapes |= conv(f"encoder.down_blocks.{index}.time_conv", width, width, 3, 1, 1)
            index += 1
    shapes |= middle("encoder.mid_block", channels) | {"encoder.norm_out.gamma": (channels, 1, 1, 1)}
    shapes |= conv("encoder.conv_out", 2 * latent, channels, 3, 3, 3)
    shapes |= conv("quant_conv", 2 * latent, 2 * latent, 1, 1, 1) | conv("post_quant_conv", latent, latent, 1, 1, 1)
    shapes |= conv("decoder.conv_in", channels, latent, 3, 3, 3) | middle("decoder.mid_block", channels)
    for level, width in enumerate(reversed(levels)):
        block = f"decoder.up_blocks.{level}"
        for number in range(3):
            shapes |= resnet(f"{block}.resnets.{number}", channels, width)
            channels = width
        if level < 3:
            shapes |= conv(f"{block}.upsamplers.0.resample.1", width // 2, width, 3, 3)
            if level < 2:
                shapes |= conv(f"{block}.upsamplers.0.time_conv", 2 * width, width, 3, 1, 1)
            channels = width // 2
    return shapes | {"decoder.norm_out.gamma": (channels, 1, 1, 1)} | conv("decoder.conv_out", 3, channels, 3, 3, 3)


def generator(seed, name):
    return np.random.Generator(np.random.SFC64([seed, zlib.crc32(name.encode())]))


def values(name, shape, seed, layers):
    """float32 values of one tensor."""
    leaf = name.rsplit(".", 1)[-1]
    data = generator(seed, name).standard_normal(shape, dtype=np.float32)
    if leaf == "gamma" or (leaf == "weight" and len(shape) == 1):
        return 1 + np.float32(0.1) * data
    if leaf == "bias":
        return np.float32(0.05) * data
    gain = 1.0
    if "_mod." in name or name.startswith("norm_out"):
        gain = 0.5
    elif "to_out" in name or "to_add_out" in name or ".net.2." in name:
        gain = 1 / math.sqrt(2 * layers)
    data *= np.float32(gain / math.sqrt(math.prod(shape[1:])))
    return data


def encoded(data, dtype):
    """The bytes of float32 values in `dtype`; bf16 is rounded to nearest, ties to even."""
    if dtype == "bf16":
        bits = data.view(np.uint32)
        odd = bits >> np.uint32(16) & np.uint32(1)
        odd += bits
        odd += np.uint32(0x7FFF)
        return (odd >> np.uint32(16)).astype("<u2").tobytes()
    return data.astype({"f16": "<f2", "f32": "<f4"}[dtype]).tobytes()


def write_safetensors(path, tensors, dtype, data_of, metadata, unaligned=False):
    """tensors: (name, shape) in the order of the data. Unaligned: the data starts at an odd byte of the file."""
    code, width = DTYPES[dtype]
    header, offset = {"__metadata__": metadata}, 0
    for name, shape in tensors:
        end = offset + width * math.prod(shape)
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * ((-len(text)) % 8 + int(unaligned))
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors:
            file.write(encoded(np.ascontiguousarray(data_of(name, shape)), dtype))
    return offset


def write_model(folder, shapes, options, shards, layers):
    """The weights of one model, split into `shards` files of about the same size."""
    folder.mkdir(parents=True, exist_ok=True)
    order = list(shapes.items())
    if options.shuffle:
        generator(options.seed, "order").shuffle(order)
    total = sum(math.prod(shape) for _, shape in order)
    parts, done = [[] for _ in range(shards)], 0
    for name, shape in order:
        parts[min(shards - 1, done * shards // total)].append((name, shape))
        done += math.prod(shape)
    if not all(parts):
        fail(f"--shards {shards}: too many for {len(order)} tensors of this size; take fewer")

    def data_of(name, shape):
        return values(name, shape, options.seed, layers)

    weight_map, size = {}, 0
    for number, part in enumerate(parts, 1):
        file = f"{STEM}.safetensors" if shards == 1 else f"{STEM}-{number:05}-of-{shards:05}.safetensors"
        size += write_safetensors(folder / file, part, options.dtype, data_of, {"format": "pt"}, options.shuffle)
        weight_map |= {name: file for name, _ in part}
    if shards > 1:
        index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}
        write_json(folder / f"{STEM}.safetensors.index.json", index)


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def prompt_key(text):
    """FNV-1a, 64 bits, of the UTF-8 bytes: the tensor's name of a prompt."""
    key = 0xCBF29CE484222325
    for byte in text.encode():
        key = ((key ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{key:016x}"


def read_prompts(path):
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        if line.strip():
            yield json.loads(line)["prompt"] if line.lstrip().startswith("{") else line


def write_embeddings(options, width):
    prompts = list(dict.fromkeys([" ", *read_prompts(options.prompts)]))
    tensors = []
    for prompt in prompts:  # about as many tokens as the encoder gives: five follow the prompt
        tensors.append((prompt_key(prompt), (min(5 + max(1, len(prompt.split())), 512), width)))

    def data_of(name, shape):
        return 2 * generator(options.seed, name).standard_normal(shape, dtype=np.float32)

    metadata = {"format": "spotlight-embeddings", "version": "1", "encoder": "random", "max_length": "512"}
    write_safetensors(options.embeddings, tensors, "f32" if options.dtype == "f32" else "bf16", data_of, metadata)


def fail(message):
    print(f"make_random_checkpoint.py: {message}", file=sys.stderr)
    sys.exit(2)


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", nargs="?", type=pathlib.Path, help="folder to write the checkpoint into")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--size", choices=SIZES, default="real")
    for key in SIZES["real"]:
        parser.add_argument(f"--{key.replace('_', '-')}", type=int, help="instead of the size's own")
    parser.add_argument("--axes", type=int, nargs=3, metavar="N", help="axes_dims_rope; must sum to the head's width")
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--shards", type=int, default=1, help="files of the transformer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shuffle", action="store_true", help="tensors in random order, at odd addresses")
    parser.add_argument("--vae", action="store_true", help="also a vae of base_dim channels")
    parser.add_argument("--embeddings", help="file of random prompt embeddings to write")
    parser.add_argument("--prompts", help="file of the prompts to embed")
    parser.add_argument("--count", action="store_true", help="print parameters and tensors, write nothing")
    options = parser.parse_args(arguments)
    if options.output is None and not options.count and not options.embeddings:
        parser.error("OUTPUT, --count or --embeddings is needed")
    if (options.embeddings is None) != (options.prompts is None):
        parser.error("--embeddings and --prompts belong together")
    if options.layers < 1 or options.shards < 1:
        parser.error("--layers and --shards must be at least 1")
    return options


def rope_axes(options, head_dim):
    axes = options.axes or AXES.get(head_dim)
    if axes is None:
        fail(f"--head-dim {head_dim}: give --axes, three even numbers that sum to it (known: {sorted(AXES)})")
    if sum(axes) != head_dim or any(axis % 2 for axis in axes):
        fail(f"--axes {axes}: three even numbers that sum to the head's width, {head_dim}, are meant")
    return axes


def main(arguments):
    options = parse_arguments(arguments)
    size = {key: fallback if getattr(options, key) is None else getattr(options, key)
            for key, fallback in SIZES[options.size].items()}
    shapes = transformer_shapes(size, options.layers)
    if options.count:
        print(f"{sum(map(math.prod, shapes.values()))} parameters in {len(shapes)} tensors")
        return
    if options.output is not None:
        config = {
            "_class_name": "QwenImageTransformer2DModel", "patch_size": 2, "in_channels": size["in_channels"],
            "out_channels": size["out_channels"], "num_layers": options.layers, "attention_head_dim": size["head_dim"],
            "num_attention_heads": size["heads"], "joint_attention_dim": size["text_width"], "guidance_embeds": False,
            "axes_dims_rope": rope_axes(options, size["head_dim"]),
        }
        index = {"_class_name": "QwenImagePipeline", "scheduler": ["diffusers", SCHEDULER["_class_name"]],
                 "transformer": ["diffusers", config["_class_name"]]}
        write_json(options.output / "transformer/config.json", config)
        write_json(options.output / "scheduler/scheduler_config.json", SCHEDULER)
        write_model(options.output / "transformer", shapes, options, options.shards, options.layers)
        if options.vae:
            index["vae"] = ["diffusers", "AutoencoderKLQwenImage"]
            write_json(options.output / "vae/config.json", {
                "_class_name": "AutoencoderKLQwenImage", "base_dim": size["base_dim"], "z_dim": 16,
                "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2, "attn_scales": [], "dropout": 0.0,
                "temperal_downsample": [False, True, True], "latents_mean": LATENTS_MEAN, "latents_std": LATENTS_STD,
            })
            write_model(options.output / "vae", vae_shapes(size["base_dim"]), options, 1, options.layers)
        write_json(options.output / "model_index.json", index)
    if options.embeddings:
        write_embeddings(options, size["text_width"])


if __name__ == "__main__":
    main(sys.argv[1:])
