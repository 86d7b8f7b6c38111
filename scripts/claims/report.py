"""Table, CSV and plot of the arms' runs.

Intervals: 95 %, percentile bootstrap over run seeds; ratios pair the arms by run seed. A run that never reaches the
target counts with all it spent, so its arm's means are lower bounds, and the table says how many did reach it.
"""

import csv

import numpy as np
from PIL import Image, ImageDraw, ImageFont

RESAMPLES = 10000
COLORS = [(30, 90, 200), (220, 110, 20), (40, 150, 60), (190, 40, 60), (130, 80, 180), (90, 90, 90)]
# Second table: title, column of RunResult.columns, factor, digits.
MEANS = (
    ("s / iteration", "time_step_s", 1, 3),
    ("training s", "train_alone_s", 1, 3),
    ("exploration overhead %", "overhead", 100, 2),
    ("spot idle %", "spot_idle", 100, 0),
    ("seeds", "explore_seeds", 1, 1),
    ("computed steps", "explore_steps", 1, 1),
    ("images explored", "explore_images", 1, 0),
    ("group std", "group_reward_std_mean", 1, 3),
    ("dead groups %", "group_zero_spread_ratio", 100, 0),
    ("control r", "explore_control_r", 1, 2),
)
QUANTITIES = {"iterations": "steps", "wall s": "wall", "cost": "cost"}


def spent(result, name, target):
    at = result.reached(target)
    return float(getattr(result, name)[-1 if at is None else at])


def interval(values, statistic=np.mean):
    """(statistic, low, high) of [n] or [n, k] values, resampling the first axis."""
    values = np.asarray(values, dtype=float)
    draws = np.random.default_rng(1).integers(0, len(values), (RESAMPLES, len(values)))
    low, high = np.percentile([statistic(values[draw]) for draw in draws], [2.5, 97.5])
    return float(statistic(values)), float(low), float(high)


def ratio_of_means(pairs):
    return pairs[:, 0].mean() / pairs[:, 1].mean()


def cell(values, digits):
    mean, low, high = interval(values)
    return f"{mean:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def mean_of(runs, name, scale, digits):
    values = [result.columns[name] for result in runs.values() if not np.isnan(result.columns.get(name, np.nan))]
    return f"{scale * np.mean(values):.{digits}f}" if values else ""


def row(*cells):
    return "| " + " | ".join(cells) + " |"


def table(results, rates, target):
    lines = [
        f"Target: held-out score {target:g} as the mean of three evaluations. 95 % intervals over run seeds.",
        "",
        "| arm | lr | runs, reached | iterations | wall s | cost | final score | wall / spotlight | cost / spotlight |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for arm, runs in results.items():
        reached = sum(result.reached(target) is not None for result in runs.values())
        cells = [cell([spent(r, name, target) for r in runs.values()], 4 if name == "cost" else 0)
                 for name in QUANTITIES.values()]  # fmt: skip
        ratios = []
        for name in ("wall", "cost"):
            ours = results.get("spotlight", {})
            pairs = np.array([(spent(runs[s], name, target), spent(ours[s], name, target)) for s in runs if s in ours])
            known = arm != "spotlight" and len(pairs) > 0
            ratios.append("%.2f (%.2f-%.2f)" % interval(pairs, ratio_of_means) if known else "")
        final = cell([r.scores[-1] for r in runs.values()], 3)
        lines.append(row(arm, f"{rates[arm]:g}", f"{len(runs)}, {reached}", *cells, final, *ratios))
    lines += ["", row("arm", *(title for title, *_ in MEANS)), "|---" * (len(MEANS) + 1) + "|"]
    for arm, runs in results.items():
        lines.append(row(arm, *(mean_of(runs, name, scale, digits) for _, name, scale, digits in MEANS)))
    return "\n".join(lines) + "\n"


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
        bands = [interval(curves[:, i]) for i in range(times.size)]
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
