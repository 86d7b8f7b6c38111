"""Ratio table of two benchmark results: compare.py OURS.json THEIRS.json NAME_OF_THEIRS.

Each file holds one JSON line as the benchmarks print it: every object with the keys of CLOCKS is a timing, named by
the path of keys that leads to it (the outermost is "total"). Prints one row a timing that both have, with ratios (below
1: ours is faster); then our numbers that stand alone, such as the share of the GEMM peak, beside theirs where they have
the same. The CPU time is the one to trust on a machine that does other things too, but with several threads it counts
the waiting for each other.
"""

import json
import sys

CLOCKS = {"median_s": "median", "min_s": "least", "cpu_s": "CPU"}


def timings(value, name=""):
    if isinstance(value, dict):
        if CLOCKS.keys() <= value.keys():
            yield name or "total", value
        for key, inner in value.items():
            yield from timings(inner, key if name in ("", "phases") else f"{name}/{key}")


def last_json(path):
    with open(path, encoding="utf-8") as file:
        objects = [line for line in file if line.startswith("{")]
    if not objects:
        raise SystemExit(f"{path}: no JSON line in the benchmark's output")
    return json.loads(objects[-1])


def main(ours_path, theirs_path, theirs_name):
    ours, theirs = last_json(ours_path), last_json(theirs_path)
    if ours["benchmark"] != theirs["benchmark"] or ours["threads"] != theirs["threads"]:
        raise SystemExit(f"not comparable: {ours_path} and {theirs_path} differ in benchmark or threads")
    by_name = dict(timings(theirs))
    print(f"\n{ours['benchmark']}, {ours['threads']} threads: spotlight beside {theirs_name}")
    print(f"{'':<18}" + "".join(f"{title + ' s':>28}" for title in CLOCKS.values()))
    print(f"{'':<18}" + "".join(f"{'ours':>10}{'theirs':>10}{'ratio':>8}" for _ in CLOCKS))
    for name, mine in timings(ours):
        other = by_name.get(name)
        if other is None or other["min_s"] < 1e-3:  # an empty phase has no ratio
            continue
        print(f"{name:<18}" + "".join(f"{mine[key]:>10.4f}{other[key]:>10.4f}{mine[key] / other[key]:>8.2f}"
                                      for key in CLOCKS))
    for name, value in ours.items():
        if isinstance(value, float) and name not in CLOCKS:
            beside = f"{theirs[name]:>14.3f}{value / theirs[name]:>8.2f}" if name in theirs else ""
            print(f"{name:<24}{value:>14.3f}{beside}")


if __name__ == "__main__":
    main(*sys.argv[1:])
