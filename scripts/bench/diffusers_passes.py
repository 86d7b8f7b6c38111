"""Passes of diffusers' Qwen-Image transformer at its real width: what bench_passes is compared with.

    diffusers_passes.py [--device cuda|cpu] [--small] [--layers 20] [--repeats 5] [--seconds 120]

1024 and 6400 image tokens (512 and 1280 px) and 128 text tokens, batch 1, random weights, all in bfloat16 (fp32 on the
CPU). forward: no gradient; frozen: forward and backward to the inputs, weights frozen. Each eager and with its blocks
compiled by torch.compile, with the fastest of PyTorch's own attentions (the default, cuDNN, flash), chosen by an eager
forward of the same size. On the CPU eager and the default alone. --seconds: nothing new is begun after that.

Prints one JSON line: {"benchmark": "passes", "peer": "diffusers", "versions": {...}, "passes": [{"mode", "how":
"eager"|"compiled", "attention", "pixels", "layers", "median_s", "min_s", "seconds_of_60_layers", "memory_gb"}, ...],
"left_out": n}. What fails has "error" in place of numbers. Exit code 3: PyTorch or diffusers is not there, or has no
GPU, with the reason on stderr.
"""

import argparse
import json
import statistics
import sys
import time

WHOLE_MODEL = 60
ATTENTIONS = ("native", "_native_cudnn", "_native_flash")


class Peer:
    def __init__(self, torch, model_class, options):
        self.torch, self.options = torch, options
        self.cuda = options.device == "cuda"
        sizes = {"num_layers": options.layers}
        self.text_tokens, self.sides = 128, (80, 32)
        if options.small:
            sizes.update(num_attention_heads=2, attention_head_dim=24, axes_dims_rope=(8, 8, 8), joint_attention_dim=56)
            self.text_tokens, self.sides = 5, (6, 4)
        self.dtype = torch.bfloat16 if self.cuda else torch.float32
        torch.manual_seed(0)
        with torch.device(options.device):
            self.model = model_class(**sizes).to(self.dtype)
        self.model.requires_grad_(False).eval()

    def inputs(self, side, gradients):
        make = lambda *shape: self.torch.randn(*shape, device=self.options.device, dtype=self.dtype)
        image = make(1, side * side, self.model.config.in_channels).requires_grad_(gradients)
        text = make(1, self.text_tokens, self.model.config.joint_attention_dim).requires_grad_(gradients)
        level = self.torch.full((1,), 0.5, device=self.options.device, dtype=self.dtype)
        return image, text, level, self.torch.randn_like(image)

    def measure(self, mode, side, repeats):
        """Seconds of each of `repeats` passes, after two that warm up."""
        image, text, level, gradient = self.inputs(side, mode == "frozen")

        def one():
            image.grad = text.grad = None
            with self.torch.set_grad_enabled(mode == "frozen"):
                out = self.model(hidden_states=image, encoder_hidden_states=text, timestep=level,
                                 img_shapes=[[(1, side, side)]], return_dict=False)[0]
                if mode == "frozen":
                    out.backward(gradient)

        one(), one()
        if not self.cuda:
            times = []
            for _ in range(repeats):
                start = time.perf_counter()
                one()
                times.append(time.perf_counter() - start)
            return times
        marks = [self.torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
        marks[0].record()
        for mark in marks[1:]:
            one()
            mark.record()
        self.torch.cuda.synchronize()
        return [1e-3 * before.elapsed_time(after) for before, after in zip(marks, marks[1:])]

    def best_attention(self, side):
        if not self.cuda:
            return "native"
        seconds = {}
        for attention in ATTENTIONS:
            try:
                self.model.set_attention_backend(attention)
                seconds[attention] = min(self.measure("forward", side, 2))
            except Exception as error:  # not for this device or version
                print(f"attention {attention}: {error}", file=sys.stderr)
        best = min(seconds, key=seconds.get)
        self.model.set_attention_backend(best)
        return best

    def row(self, mode, how, attention, side):
        row = {"mode": mode, "how": how, "attention": attention, "pixels": 16 * side, "layers": self.options.layers}
        try:
            if self.cuda:
                self.torch.cuda.reset_peak_memory_stats()
            times = self.measure(mode, side, self.options.repeats)
        except Exception as error:
            return {**row, "error": str(error)[:500]}
        median = statistics.median(times)
        used = self.torch.cuda.max_memory_allocated() / 1e9 if self.cuda else 0
        return {**row, "median_s": median, "min_s": min(times),
                "seconds_of_60_layers": median * WHOLE_MODEL / self.options.layers, "memory_gb": round(used, 2)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=120)
    options = parser.parse_args()
    began = time.monotonic()
    try:
        import diffusers
        import torch
        from diffusers import QwenImageTransformer2DModel
    except ImportError as error:
        print(f"no peer: {error}", file=sys.stderr)
        return 3
    if options.device == "cuda" and not torch.cuda.is_available():
        print(f"no peer: PyTorch {torch.__version__} finds no GPU", file=sys.stderr)
        return 3

    peer = Peer(torch, QwenImageTransformer2DModel, options)
    rows, left_out, attentions = [], 0, {}
    for how in ("eager", "compiled") if peer.cuda else ("eager",):
        if how == "compiled":
            peer.model.compile_repeated_blocks(dynamic=False)
        for side in peer.sides:
            for mode in ("forward", "frozen"):
                if time.monotonic() - began > options.seconds:
                    left_out += 1
                    continue
                if side not in attentions:
                    attentions[side] = peer.best_attention(side)
                elif peer.cuda:
                    peer.model.set_attention_backend(attentions[side])
                rows.append(peer.row(mode, how, attentions[side], side))
    versions = {"torch": torch.__version__, "diffusers": diffusers.__version__}
    print(json.dumps({"benchmark": "passes", "peer": "diffusers", "versions": versions, "passes": rows,
                      "left_out": left_out}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
