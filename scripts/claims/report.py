"""Table, CSV and plot of the arms' runs.

Intervals: scripts/claims/intervals.py. Arms are compared run seed by run seed. A run that never reaches the target is
censored: what it took is more than all it spent. So the means of its arm, and ratios to spotlight, are lower bounds
(>=); and where spotlight's own run is censored there is no ratio. Nothing is left out of a mean.
"""

import csv
import sys

import intervals
import numpy as np
from PIL import Image, ImageDraw, ImageFont

COLORS = [(30, 90, 200), (220, 110, 20), (40, 150, 60), (190, 40, 60), (130, 80, 180), (90, 90, 90)]
QUANTITIES = {"iterations": "steps", "wall s": "wall", "cost": "cost"}
# Second table: title, column of RunResult.columns, factor, digits.
MEANS = (
    ("s / iteration", "time_step_s", 1, 3),
    ("training s", "train_alone_s", 1, 3),
    ("wait at training's end %", "wait", 100, 2),
    ("spot idle %", "spot_idle", 100, 0),
    ("seeds", "explore_seeds", 1, 1),
    ("computed steps", "explore_steps", 1, 1),
    ("images explored", "explore_images", 1, 0),
    ("group std", "group_reward_std_mean", 1, 3),
    ("dead groups %", "group_zero_spread_ratio", 100, 0),
    ("control r", "explore_control_r", 1, 2),
)
# Third table: what exploration costs the ranks that do not explore.
IDLE_ARM = "rollouts_only"
TIMES = (("s / iteration", "time_step_s"), ("training s", "train_alone_s"), ("training per pair", "train_pair_ms"))
NOTES = """
Target: held-out score {target:g} as the mean of three evaluations. n: runs that finished, those that diverged are not
among them. 95 % intervals: Student's t over the n run seeds. Ratios: geometric means over the pairs of runs with one
run seed, t on the logarithms. >=: some run of the arm never reached the target and counts with all it spent, so this is
a lower bound and has no interval. -: nothing to tell; of a ratio: a run of spotlight itself did not reach the target.
"""
TIMES_NOTES = """
Time against {arm}, whose spot ranks idle while trainers train: ratios as above. A pair is one (image, step) that is
trained on: groups without spread are skipped, so an arm with fewer of them trains longer.
"""


def spent(result, name, target):
    at = result.reached(target)
    return float(getattr(result, name)[-1 if at is None else at])


def means_until(runs, name, target, digits):
    values = [spent(result, name, target) for result in runs.values()]
    if any(result.reached(target) is None for result in runs.values()):
        return f">= {np.mean(values):.{digits}f}"
    return intervals.text(intervals.of_mean(values), digits)


def ratio_until(runs, ours, name, target):
    """Of what `runs` spent until the target to what `ours` did, as a cell."""
    seeds = sorted(runs.keys() & ours.keys())
    if not seeds or any(ours[seed].reached(target) is None for seed in seeds):
        return "-"
    pairs = [(spent(runs[seed], name, target), spent(ours[seed], name, target)) for seed in seeds]
    if any(runs[seed].reached(target) is None for seed in seeds):
        return f">= {intervals.of_ratio(pairs)[0]:.2f}"
    return intervals.text(intervals.of_ratio(pairs), 2)


def mean_of(runs, name, scale, digits):
    values = [result.columns[name] for result in runs.values() if name in result.columns]
    return f"{scale * np.mean(values):.{digits}f}" if values else "-"


def ratio_of(runs, idle, name):
    seeds = sorted(runs.keys() & idle.keys())
    pairs = [(runs[seed].columns[name], idle[seed].columns[name]) for seed in seeds]
    return intervals.text(intervals.of_ratio(pairs), 3) if pairs else "-"


def row(*cells):
    return "| " + " | ".join(cells) + " |"


def grid(titles, rows):
    return [row(*titles), "|---" * len(titles) + "|", *(row(*cells) for cells in rows)]


def table(results, rates, target):
    ours = results.get("spotlight", {})
    rows = []
    for arm, runs in results.items():
        reached = sum(result.reached(target) is not None for result in runs.values())
        spending = [means_until(runs, name, target, 4 if name == "cost" else 0) for name in QUANTITIES.values()]
        final = intervals.text(intervals.of_mean([result.scores[-1] for result in runs.values()]), 3)
        compared = [str(len(runs.keys() & ours.keys()))]
        compared += [ratio_until(runs, ours, name, target) for name in ("wall", "cost")]
        if arm == "spotlight":
            compared = ["", "", ""]
        rows.append([arm, f"{rates[arm]:g}", str(len(runs)), str(reached), *spending, final, *compared])
    titles = ["arm", "lr", "n", "reached", *QUANTITIES, "final score", "pairs", "wall / spotlight", "cost / spotlight"]
    lines = [*alike(results), NOTES.format(target=target).strip(), "", *grid(titles, rows), ""]
    rows = [[arm, *(mean_of(runs, name, *form) for _, name, *form in MEANS)] for arm, runs in results.items()]
    lines += grid(["arm", *(title for title, *_ in MEANS)], rows)
    if IDLE_ARM in results:
        idle = results[IDLE_ARM]
        rows = [[arm, str(len(runs.keys() & idle.keys())), *(ratio_of(runs, idle, name) for _, name in TIMES)]
                for arm, runs in results.items() if arm != IDLE_ARM]  # fmt: skip
        lines += ["", TIMES_NOTES.format(arm=IDLE_ARM).strip(), ""]
        lines += grid(["arm", "pairs", *(f"{title} / {IDLE_ARM}" for title, _ in TIMES)], rows)
    return "\n".join(lines) + "\n"


def alike(results):
    """A warning if the runs are of several programs."""
    by_program = {}
    for arm, runs in results.items():
        for seed, result in runs.items():
            by_program.setdefault(result.program, []).append(f"{arm} {seed}")
    if len(by_program) < 2:
        return []
    programs = "; ".join(f"{program or 'unknown'}: {', '.join(runs)}" for program, runs in by_program.items())
    warning = f"Warning: not all of one program, so not to be compared (git_sha: arm and run seed): {programs}"
    print(f"claims.sh: {warning}", file=sys.stderr)
    return [warning, ""]


def write_csv(path, results, rates, target):
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["arm", "lr", "seed", "reached", *QUANTITIES, "final_score"])
        for arm, runs in results.items():
            for seed, result in runs.items():
                reached = int(result.reached(target) is not None)
                values = [f"{spent(result, name, target):.6g}" for name in QUANTITIES.values()]
                rows.writerow([arm, rates[arm], seed, reached, *values, result.scores[-1]])


def plot(path, results, target):
    """Mean held-out score over wall time, with the interval of the mean."""
    width, height, left, top, right, bottom = 900, 520, 60, 20, 700, 460
    canvas = Image.new("RGB", (width, height), "white")
    draw = ImageDraw.Draw(canvas, "RGBA")
    font = ImageFont.load_default(13)
    latest = max(np.median([r.wall[-1] for r in runs.values()]) for runs in results.values())
    scores = np.concatenate([r.scores for runs in results.values() for r in runs.values()])
    low, high = np.floor(scores.min() * 10) / 10, np.ceil(scores.max() * 10) / 10

    def place(seconds, score):
        return left + (right - left) * seconds / latest, bottom - (bottom - top) * (score - low) / (high - low)

    for score in np.arange(low, high + 0.01, 0.1):
        y = place(0, score)[1]
        draw.line([(left, y), (right, y)], (210, 210, 210))
        draw.text((left - 36, y - 8), f"{score:.1f}", (20, 20, 20), font)
    for seconds in np.linspace(0, latest, 6):
        draw.text((place(seconds, low)[0] - 10, bottom + 6), f"{seconds:.0f}", (20, 20, 20), font)
    draw.text(((left + right) / 2 - 90, bottom + 28), "wall time (s); held-out score", (20, 20, 20), font)
    draw.line([place(0, target), place(latest, target)], (0, 0, 0), 1)
    for (arm, runs), color in zip(results.items(), COLORS):
        times = np.linspace(0, min(latest, min(r.wall[-1] for r in runs.values())), 60)
        curves = np.array([np.interp(times, r.wall, r.scores) for r in runs.values()])
        bands = [np.nan_to_num(intervals.of_mean(values), nan=values.mean()) for values in curves.T]
        band = [place(t, b[1]) for t, b in zip(times, bands)] + [place(t, b[2]) for t, b in zip(times, bands)][::-1]
        draw.polygon(band, (*color, 40))
        draw.line([place(t, b[0]) for t, b in zip(times, bands)], (*color, 255), 2)
        draw.text((right + 10, top + 22 * list(results).index(arm)), f"{arm} ({len(runs)})", color, font)
    canvas.save(path, optimize=True)


def write(out, results, rates, target):
    text = table(results, rates, target)
    (out / "claims.md").write_text(text, encoding="utf-8")
    write_csv(out / "claims.csv", results, rates, target)
    plot(out / "claims.png", results, target)
    print(text)
    print(f"{out}/claims.md  {out}/claims.csv  {out}/claims.png")
