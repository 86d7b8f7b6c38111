"""Loads the shards of a model folder with the safetensors library; the counterpart of tests/bench/bench_load.cpp.

    safetensors_load.py FOLDER --to f32|bf16 --threads N [--repeats R]

Every tensor ends in memory of its own, as ours does: load_file alone maps the file and reads nothing, so .float() and
(to bf16) .to(bfloat16) or .clone() follow. Each repeat is a process of its own, since a run loads once, into memory
that is new; the first, which brings the files into memory, is not counted. Most of the time goes into new memory. Ours
asks the system for its large pages; PyTorch does so only if THP_MEM_ALLOC_ENABLE=1 is in the environment, and takes
three times as long without. Prints one JSON line for compare.py; peak_mib is the largest resident size less that
before.
"""

import argparse
import json
import os
import pathlib
import resource
import statistics
import time

import torch
from safetensors.torch import load_file


def load(files, dtype):
    weights = {}
    for file in files:
        tensors = load_file(file)
        for name in list(tensors):
            tensor = tensors.pop(name)
            weights[name] = tensor.clone() if tensor.dtype == dtype else tensor.to(dtype)
    return weights


def peak_mebibytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def load_once(files, dtype, threads):
    """(wall s, CPU s, peak MiB) of one load in a child process."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(threads)
        before = peak_mebibytes()
        start = time.perf_counter(), time.process_time()
        load(files, dtype)
        result = time.perf_counter() - start[0], time.process_time() - start[1], peak_mebibytes() - before
        os.write(write_end, json.dumps(result).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        result = json.load(pipe)
    os.waitpid(child, 0)
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--to", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    files = sorted(options.folder.glob("*.safetensors"))
    dtype = torch.float32 if options.to == "f32" else torch.bfloat16
    loads = [load_once(files, dtype, options.threads) for _ in range(options.repeats + 1)][1:]
    wall = [load[0] for load in loads]
    print(json.dumps({
        "benchmark": f"load to {options.to}", "threads": options.threads, "median_s": statistics.median(wall),
        "min_s": min(wall), "cpu_s": min(load[1] for load in loads), "peak_mib": loads[-1][2],
    }))


if __name__ == "__main__":
    main()
