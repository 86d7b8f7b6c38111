"""One RL iteration of inputs/geneval.ini in plain PyTorch, by phase: what bench_iteration is compared with.

    pytorch_iteration.py MODEL_FOLDER [--threads 2] [--iterations 10] [--explore 0] [--check]

P prompts x k images, SDE window, GRPO with clipped ratio, full fine-tune in fp32, fused AdamW, gradient clipping.
Batched; no gradient in the rollout; old log-probs from the stored noise, without a second forward. The reward is the
decoded image's brightness: the phase `reward` holds the decoding, not a detector.

Prints one JSON line: {"benchmark": "iteration", "threads": n, "median_s": s, "min_s": s, "cpu_s": s, "peak_mib": m,
"phases": {"explore"|"rollout"|"reward"|"train": {"median_s": s, "min_s": s, "cpu_s": s}}}; cpu_s is the least time of
all the process' threads. --check only compares the model with diffusers' class and fails if they differ by more than
1e-4.
"""

import argparse
import json
import pathlib
import resource
import statistics
import sys
import time

import torch
from safetensors.torch import load_file

from torch_dit import TorchDit, self_check, window_coefficients

NOISE_LEVEL = 0.7
CLIP_RANGE = 1e-4
LEARNING_RATE = 4e-4


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--images", type=int, default=8, help="kept images per prompt")
    parser.add_argument("--explore", type=int, default=0, help="explored seeds per prompt; 0: no exploration")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--window", type=int, default=5, help="leading stochastic steps, which are trained on")
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--check", action="store_true")
    return parser.parse_args()


class Iteration:
    def __init__(self, options):
        self.options = options
        self.model = TorchDit(options.model)
        self.table = load_file(options.model / "text_embedding.safetensors")["embed_tokens.weight"]
        vae = load_file(options.model / "linear_vae.safetensors")
        self.decoder, self.background = vae["dec"], vae["bg"]
        self.coefficients = window_coefficients(options.steps, NOISE_LEVEL, options.window)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, weight_decay=1e-4, fused=True)
        torch.manual_seed(0)

    @torch.no_grad()
    def sample(self, text):
        """text [B, T, c]. Returns latents of all steps and their noise, [steps+1, B, S, 64] each."""
        batch, steps = text.shape[0], self.options.steps
        noise = torch.randn(steps + 1, batch, 16, 64)
        row = torch.zeros(batch, dtype=torch.long)
        latents = [noise[0]]
        for i, (sigma, cx, cv, std) in enumerate(self.coefficients.tolist()):
            velocity = self.model.velocity(latents[-1], text, self.coefficients[i, :1], row)
            latent = cx * latents[-1] + cv * velocity
            latents.append(latent.add_(noise[i + 1], alpha=std) if std > 0 else latent)
        return torch.stack(latents), noise

    @torch.no_grad()
    def reward(self, latent):
        """Brightness [B] of the decoded images [B, 64, 64, 3]."""
        pixels = latent.unflatten(1, (4, 4)).unflatten(-1, (16, 2, 2))  # [B, y, x, channel, dy, dx]
        grid = pixels.permute(0, 1, 4, 2, 5, 3).reshape(-1, 8, 8, 16)
        patches = (grid @ self.decoder).unflatten(-1, (8, 8, 3))
        images = (patches.permute(0, 1, 3, 2, 4, 5).reshape(-1, 64, 64, 3) + self.background).clamp_(0, 1)
        return images.mean((1, 2, 3))

    def train(self, text, latents, noise, advantage):
        window, coefficients = self.options.window, self.coefficients
        batch = text.shape[0]
        order = torch.randperm(batch * window)
        for pairs in order.chunk(self.options.updates):
            sample, step = pairs // window, pairs % window
            now, following = latents[step, sample], latents[step + 1, sample]
            cx, cv, std = (coefficients[step, column, None, None] for column in (1, 2, 3))
            velocity = self.model.velocity(now, text[sample], coefficients[:window, 0], step)
            # The old mean lies std * noise below the sample that was drawn.
            old = (noise[step + 1, sample] ** 2).mean((1, 2)) / -2
            new = (((following - cx * now - cv * velocity) / std) ** 2).mean((1, 2)) / -2
            ratio = (new - old).exp()
            gain = advantage[sample]
            loss = -torch.minimum(ratio * gain, ratio.clamp(1 - CLIP_RANGE, 1 + CLIP_RANGE) * gain).mean()
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_([p for p in self.model.parameters() if p.grad is not None], 1.0)
            self.optimizer.step()

    def run(self):
        """One iteration; (wall, CPU) seconds by phase."""
        options, marks = self.options, [clocks()]
        prompts = self.table[torch.randint(1, self.table.shape[0], (options.prompts, 7))]
        if options.explore:
            explored, _ = self.sample(prompts.repeat_interleave(options.explore, 0))
            self.reward(explored[-1])
        marks.append(clocks())
        text = prompts.repeat_interleave(options.images, 0)
        latents, noise = self.sample(text)
        marks.append(clocks())
        reward = self.reward(latents[-1]).view(options.prompts, options.images)
        advantage = ((reward - reward.mean(1, keepdim=True)) / (reward.std(1, keepdim=True) + 1e-4)).flatten()
        marks.append(clocks())
        self.train(text, latents, noise, advantage)
        marks.append(clocks())
        spent = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(marks, marks[1:])]
        return dict(zip(("explore", "rollout", "reward", "train"), spent))


def clocks():
    return time.perf_counter(), time.process_time()


def summary(seconds):
    """Of (wall, CPU) pairs."""
    wall, cpu = zip(*seconds)
    return {"median_s": round(statistics.median(wall), 6), "min_s": round(min(wall), 6), "cpu_s": round(min(cpu), 6)}


def main():
    options = parse()
    torch.set_num_threads(options.threads)
    if options.check:
        difference = self_check(options.model)
        print(json.dumps({"difference_to_diffusers": difference}))
        return 0 if difference < 1e-4 else 1
    iteration = Iteration(options)
    for _ in range(2):
        iteration.run()
    runs = [iteration.run() for _ in range(options.iterations)]
    print(json.dumps({"benchmark": "iteration", "threads": options.threads,
                      **summary([tuple(map(sum, zip(*run.values()))) for run in runs]),
                      "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
                      "phases": {phase: summary([run[phase] for run in runs]) for phase in runs[0]}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
