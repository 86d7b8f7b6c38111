"""Time of decoding one image with diffusers' AutoencoderKLQwenImage at its real size: what bench_vae is compared with.

    diffusers_vae.py [--threads 2] [--repeats 3] [--pixels 256 512]

fp32, random weights, no gradient; latents go in packed as the transformer makes them and are denormalised, as in the
pipeline.

Prints one JSON line: {"benchmark": "vae", "threads": n, "pixels256": {"median_s": s, "min_s": s, "cpu_s": s},
"pixels512": {...}, "peak_mib": m}; cpu_s is the least time of all the process' threads.
"""

import argparse
import json
import resource
import statistics
import time

import torch
from diffusers import AutoencoderKLQwenImage


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
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--pixels", type=int, nargs="*", default=[256, 512])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    vae = AutoencoderKLQwenImage().eval()
    channels = vae.config.z_dim
    mean = torch.tensor(vae.config.latents_mean).view(1, channels, 1, 1, 1)
    std = torch.tensor(vae.config.latents_std).view(1, channels, 1, 1, 1)

    @torch.no_grad()
    def decode(packed, side):
        latents = packed.view(side, side, channels, 2, 2).permute(2, 0, 3, 1, 4)
        latents = latents.reshape(1, channels, 1, 2 * side, 2 * side) * std + mean
        return vae.decode(latents, return_dict=False)[0] / 2 + 0.5

    timings = {}
    for pixels in options.pixels:
        side = pixels // 16
        packed = torch.randn(side * side, 4 * channels)
        timings[f"pixels{pixels}"] = measure(lambda: decode(packed, side), options.repeats)
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    print(json.dumps({"benchmark": "vae", "threads": options.threads, **timings, "peak_mib": peak}))


if __name__ == "__main__":
    main()
