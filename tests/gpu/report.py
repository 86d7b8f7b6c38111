"""The readable form of gpu_check.json, and how it compares with the goals (docs/design.md, "Back ends")."""

BANDWIDTH_GOAL, PEAK_GOAL, PEER_GOAL = 0.90, 0.60, 1.15
LARGE = 32e6  # bytes: below, launching takes a part of the time


def table(titles, rows):
    lines = ["| " + " | ".join(titles) + " |", "|" + "---|" * len(titles)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def numbers_of(facts, stage):
    return facts["stages"].get(stage, {}).get("numbers") or {}


def summary(facts):
    rows = [(name, row["status"].upper() if row["status"] == "failed" else row["status"], f"{row['seconds']:.0f}",
             "" if row["memory_mib"] is None else row["memory_mib"], row["summary"].replace("|", "/"))
            for name, row in facts["stages"].items()]
    return table(("stage", "", "s", "GPU MiB", "what"), rows)


def operations(facts):
    numbers = numbers_of(facts, "operations")
    if not numbers:
        return ""
    rows = []
    for row in numbers["operations"]:
        if "error" in row:
            rows.append((row["name"], row["shape"], row["type"], "FAILED: " + row["error"][:120], "", "", ""))
            continue
        speed = f"{row['tflop_per_s']:.1f} TFLOP/s" if row["flops"] else f"{row['gb_per_s']:.0f} GB/s"
        rows.append((row["name"], row["shape"], row["type"], f"{row['median_s'] * 1e6:.1f}",
                     f"{row['bytes'] / 1e6:.1f}", speed, f"{100 * row['share']:.0f} %"))
    title = (f"## Operations\n\nMeasured peaks: copy {numbers['copy_gb_per_s']:.0f} GB/s, read and written; bf16 "
             f"product {numbers['product_tflop_per_s']:.1f} TFLOP/s. Shares are of these.\n\n")
    return title + table(("operation", "shape", "type", "us", "MB", "speed", "of the peak"), rows)


def best_peer(facts, mode, pixels):
    """The fastest of the peer's ways: its row, or None."""
    rows = [row for row in numbers_of(facts, "peer").get("passes", ())
            if "error" not in row and row["mode"] == mode and row["pixels"] == pixels]
    return min(rows, key=lambda row: row["median_s"], default=None)


def comparisons(facts):
    """(row of ours, row of the peer, its time over ours), at equal numbers of layers."""
    found = []
    for row in numbers_of(facts, "passes").get("passes", ()):
        other = None if "error" in row else best_peer(facts, row["mode"], row["pixels"])
        if other is not None and other["layers"] == row["layers"]:
            found.append((row, other, other["median_s"] / row["median_s"]))
    return found


def passes(facts):
    numbers = numbers_of(facts, "passes")
    if not numbers:
        return ""
    beside = {id(row): (other, ratio) for row, other, ratio in comparisons(facts)}
    rows = []
    for row in numbers["passes"]:
        if "error" in row:
            rows.append((row["mode"], row["pixels"], row["layers"], row["activations"], "FAILED: " + row["error"][:120],
                         "", "", "", "", "", ""))
            continue
        other, ratio = beside.get(id(row), (None, None))
        rows.append((row["mode"], row["pixels"], row["layers"], row["activations"], f"{row['median_s'] * 1e3:.1f}",
                     f"{row['tflop_per_s']:.1f}", f"{100 * row['share']:.0f} %",
                     f"{row['seconds_of_60_layers'] * 1e3:.0f}", f"{row['memory_gb']:.1f}",
                     f"{other['median_s'] * 1e3:.1f} ({other['how']}, {other['attention']})" if other else "",
                     f"{ratio:.2f}" if other else ""))
    text = ("## Passes\n\nBatch 1, 128 text tokens. Milliseconds of 60 layers are those of the measured layers times "
            "60 / layers.\n\n")
    text += table(("pass", "px", "layers", "activations", "ms", "TFLOP/s", "of the peak", "ms of 60 layers", "GPU GB",
                   "diffusers ms", "its time / ours"), rows)
    planned = numbers.get("plan_seconds")
    if planned:
        text += (f"\n\nAn attention takes {planned[0]:.2f} s longer the first time, and {min(planned[1:]):.2f} to "
                 f"{max(planned[1:]):.2f} s for each other length of text: cuDNN makes a plan for it, once.")
    others = numbers_of(facts, "peer").get("passes", ())
    if others:
        text += "\n\n" + table(("diffusers", "px", "layers", "how", "attention", "ms", "GB"), [
            (row["mode"], row["pixels"], row["layers"], row["how"], row["attention"],
             "failed: " + row["error"][:120] if "error" in row else f"{row['median_s'] * 1e3:.1f}",
             row.get("memory_gb", "")) for row in others])
    return text


def goals(facts):
    """[(goal, met, figures)], of what was measured; speed that misses one is no failure of the check."""
    if facts["rehearsal"]:
        return []
    found = []
    moved = [row for row in numbers_of(facts, "operations").get("operations", ())
             if "error" not in row and not row["flops"] and row["bytes"] >= LARGE]
    if moved:
        slow = sorted((row["share"], row["name"]) for row in moved if row["share"] < BANDWIDTH_GOAL)
        found.append((f"elementwise kernels reach {100 * BANDWIDTH_GOAL:.0f} % of the copy's bandwidth", not slow,
                      f"{len(moved) - len(slow)} of {len(moved)}; slowest: "
                      + ", ".join(f"{name} {100 * share:.0f} %" for share, name in slow[:5]) if slow else "all"))
    whole = [row for row in numbers_of(facts, "passes").get("passes", ()) if "error" not in row]
    if whole:
        least = min(whole, key=lambda row: row["share"])
        found.append((f"passes reach {100 * PEAK_GOAL:.0f} % of the measured bf16 peak", least["share"] >= PEAK_GOAL,
                      f"least {100 * least['share']:.0f} %: {least['mode']}, {least['pixels']} px"))
    compared = comparisons(facts)
    if compared:
        row, _, ratio = min(compared, key=lambda each: each[2])
        found.append((f"passes are {PEER_GOAL} times as fast as diffusers'", ratio >= PEER_GOAL,
                      f"least {ratio:.2f}: {row['mode']}, {row['pixels']} px"))
    training = [row for row in whole if (row["mode"], row["pixels"], row["layers_wanted"]) == ("lora", 1280, 60)]
    if training:
        found.append(("forward and backward of an adapter of the whole model at 1280 px, batch 1, fit into the GPU",
                      training[0]["layers"] == 60,
                      f"{training[0]['layers']} layers, {training[0]['memory_gb']:.0f} GB"))
    return found


def markdown(facts):
    title = "# GPU check"
    if facts["rehearsal"]:
        title += ": REHEARSAL on the CPU, sizes are small and speeds mean nothing"
    machine = ", ".join(f"{name} {value}" for name, value in facts["machine"].items())
    parts = [title, machine, summary(facts)]
    met = goals(facts)
    if met:
        parts.append("## Goals\n\n" + table(("goal", "", "figures"), [(goal, "met" if yes else "MISSED", figures)
                                                                      for goal, yes, figures in met]))
    parts += [operations(facts), passes(facts)]
    for name, row in facts["stages"].items():
        failures = (row.get("numbers") or {}).get("failures") or {}
        failed_runs = {run: each["why"] for run, each in ((row.get("numbers") or {}).get("runs") or {}).items()
                       if not each["passed"]}
        if row["status"] == "failed" and row.get("log"):
            parts.append(f"### {name}\n\n```\n{row['log'][-2000:]}\n```")
        for what, why in {**failures, **failed_runs}.items():
            parts.append(f"### {name}: {what}\n\n```\n{why[:1200]}\n```")
    return "\n\n".join(part for part in parts if part)
