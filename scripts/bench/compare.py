"""Ratio table of two benchmark results: compare.py OURS.json THEIRS.json NAME_OF_THEIRS.

Each file holds one JSON line as the benchmarks print it: every object with "median_s" and "min_s" is a timing, named by
the path of keys that leads to it (the outermost is "total"). Prints one row a timing that both have: medians, minima
and their ratios (below 1: ours is faster); then our numbers that stand alone, such as the share of the GEMM peak.
"""

import json
import sys


def timings(value, name=""):
    if isinstance(value, dict):
        if "median_s" in value and "min_s" in value:
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
    print(f"\n{ours['benchmark']}, {ours['threads']} threads{'spotlight':>30}{theirs_name:>22}{'ratio':>16}")
    print(f"{'':<18}{'median s':>14}{'min s':>11}{'median s':>14}{'min s':>11}{'median':>9}{'min':>8}")
    by_name = dict(timings(theirs))
    for name, mine in timings(ours):
        other = by_name.get(name)
        if other is None or other["min_s"] < 1e-3:  # an empty phase has no ratio
            continue
        ratios = [mine[key] / other[key] for key in ("median_s", "min_s")]
        print(f"{name:<18}{mine['median_s']:>14.4f}{mine['min_s']:>11.4f}{other['median_s']:>14.4f}"
              f"{other['min_s']:>11.4f}{ratios[0]:>9.2f}{ratios[1]:>8.2f}")
    for name, value in ours.items():
        if isinstance(value, float) and name not in ("median_s", "min_s"):
            print(f"{name:<18}{value:>14.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
