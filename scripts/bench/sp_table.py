"""Efficiency table of bench_sp's lines: sp_table.py LINES.json.

Per degree and pass: seconds of the slowest rank, the share of them in exchanges (waiting included), efficiency
t1 / (P tP), and the same by CPU time outside the exchanges, which is the one to read where ranks share cores. Fails if
a degree's results differ from degree 1 in any bit.
"""

import json
import sys


def main(path):
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.startswith("{")]
    if not lines:
        raise SystemExit(f"{path}: no JSON line in the benchmark's output")
    print("\nsequence parallelism: one block at 512 px, one thread a rank")
    print(f"{'degree  pass':<26}{'s':>9}{'exchange':>10}{'efficiency':>12}{'by CPU':>9}  bits")
    for line in lines:
        bits = "equal" if line["bit_equal"] else "DIFFER"
        note = "  (more ranks than cores)" if line["degree"] > line["cores"] else ""
        for name in ("forward", "forward_backward"):
            row = line[name]
            print(f"{line['degree']:>6}  {name:<18}{row['min_s']:>9.3f}{row['exchange_share']:>10.1%}"
                  f"{row['efficiency']:>12.2f}{row['work_efficiency']:>9.2f}  {bits}{note}")
    for line in lines:
        exchange = line["exchange"]
        print(f"{line['degree']:>6}  all-to-all of q, k, v: {exchange['mib']:.1f} MiB a rank in "
              f"{1e3 * exchange['min_s']:.1f} ms, {exchange['gb_per_s']:.1f} GB/s, "
              f"{exchange['memcpy_share']:.2f} of memcpy's speed; group made in {1e3 * line['create_s']:.0f} ms")
    for line in lines:
        if "text_replicated" in line:
            work = line["text_replicated"]
            better = "sharding" if work["cpu"] > 1 else "replicating"
            print(f"{line['degree']:>6}  {better} the text is better: replicated, a rank's work is x {work['cpu']:.2f} "
                  f"(x {work['rows']:.2f} by rows)")
    return 0 if all(line["bit_equal"] for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
