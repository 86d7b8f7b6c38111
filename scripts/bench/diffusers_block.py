"""Time of diffusers' transformer block at Qwen-Image's real size: what bench_block is compared with.

    diffusers_block.py [--threads 2] [--repeats 10]

d 3072, 24 heads x 128, 1024 image (32 x 32) + 64 text tokens, batch 1, fp32. forward: no gradient.
forward_backward: gradients of all weights and of the image, text and time inputs; frozen: forward and backward with
those of the image and text inputs only. bf16: the same with weights, inputs and arithmetic in bfloat16.

Prints one JSON line: {"benchmark": "block", "threads": n, "forward": {"median_s": s, "min_s": s, "cpu_s": s},
"forward_backward": {...}, "frozen": {...}, "bf16": {"forward": {...}, "frozen": {...}}, "peak_mib": m}; cpu_s is the
least time of all the process' threads, peak_mib is that of fp32.
"""

import argparse
import json
import resource
import statistics
import time

import torch
from diffusers.models.transformers.transformer_qwenimage import QwenEmbedRope, QwenImageTransformerBlock

WIDTH, HEADS, HEAD_SIZE = 3072, 24, 128
GRID, TEXT_LENGTH = 32, 64


def rope():
    embed = QwenEmbedRope(theta=10000, axes_dim=[16, 56, 56], scale_rope=True)
    return embed([(1, GRID, GRID)], max_txt_seq_len=TEXT_LENGTH, device=torch.device("cpu"))


def measure(function, repeats):
    function()  # warm-up
    wall, cpu = [], []
    for _ in range(repeats):
        start = time.perf_counter(), time.process_time()
        function()
        wall.append(time.perf_counter() - start[0])
        cpu.append(time.process_time() - start[1])
    return {"median_s": round(statistics.median(wall), 6), "min_s": round(min(wall), 6), "cpu_s": round(min(cpu), 6)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    block = QwenImageTransformerBlock(dim=WIDTH, num_attention_heads=HEADS, attention_head_dim=HEAD_SIZE)
    image = torch.randn(1, GRID * GRID, WIDTH, requires_grad=True)
    text = torch.randn(1, TEXT_LENGTH, WIDTH, requires_grad=True)
    time_embedding = torch.randn(1, WIDTH, requires_grad=True)
    frequencies = rope()
    grad_image, grad_text = torch.randn_like(image), torch.randn_like(text)

    def forward():
        return block(hidden_states=image, encoder_hidden_states=text, encoder_hidden_states_mask=None,
                     temb=time_embedding, image_rotary_emb=frequencies)

    def forward_only():
        with torch.no_grad():
            forward()

    def forward_backward():
        block.zero_grad(set_to_none=True)
        image.grad = text.grad = time_embedding.grad = None
        out_text, out_image = forward()
        torch.autograd.backward([out_text, out_image], [grad_text, grad_image])

    timings = {"forward": measure(forward_only, options.repeats),
               "forward_backward": measure(forward_backward, options.repeats)}
    block.zero_grad(set_to_none=True)
    block.requires_grad_(False)
    time_embedding = time_embedding.detach()
    timings["frozen"] = measure(forward_backward, options.repeats)
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    block.to(torch.bfloat16)
    image, text = (x.detach().bfloat16().requires_grad_(True) for x in (image, text))
    time_embedding, grad_image, grad_text = (x.bfloat16() for x in (time_embedding, grad_image, grad_text))
    timings["bf16"] = {"forward": measure(forward_only, options.repeats),
                       "frozen": measure(forward_backward, options.repeats)}
    print(json.dumps({"benchmark": "block", "threads": options.threads, **timings, "peak_mib": peak}))


if __name__ == "__main__":
    main()
