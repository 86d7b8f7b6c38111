#!/usr/bin/env python3
"""Draws a run as one PNG: the same prompts and seeds before and after, and the held-out score over the iterations.

    picture.py RUN_DIRECTORY OUT.png

Reads RUN_DIRECTORY/run.h5 (docs/files.md). Needs h5py, NumPy and Pillow 10.1 or later. Exit code 1 with one line if the run has no
pictures yet or a package is missing.
"""

import pathlib
import sys
import textwrap

try:
    import h5py
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont
except ImportError as error:
    sys.exit(f"picture.py: {error}; pip install h5py numpy pillow, or scripts/setup.sh --python and .deps/python")

SIDE, GAP, TOP, CAPTION, COLUMNS = 96, 8, 34, 40, 8  # pixels; pictures in a row
CURVE = (COLUMNS * (SIDE + GAP), 260)
INK, GRAY, BLUE, ORANGE = (20, 20, 20), (190, 190, 190), (30, 90, 200), (220, 110, 20)


def font(size):
    return ImageFont.load_default(size)


def row_of_pictures(canvas, top, title, pictures, captions):
    draw = ImageDraw.Draw(canvas)
    draw.text((GAP, top), title, INK, font(16))
    for i, (picture, caption) in enumerate(zip(pictures, captions)):
        left = GAP + i * (SIDE + GAP)
        canvas.paste(Image.fromarray(picture).resize((SIDE, SIDE), Image.NEAREST), (left, top + TOP - 8))
        prompt, reward = caption.rsplit(" | ", 1)
        lines = textwrap.wrap(prompt.removeprefix("a photo of "), 17) + [f"reward {reward}"]
        draw.multiline_text((left, top + TOP + SIDE - 5), "\n".join(lines), INK, font(11), spacing=1)


def curve(canvas, top, step, columns):
    """columns: (label, color, values, standard errors or None)."""
    draw = ImageDraw.Draw(canvas)
    left, right, bottom = GAP + 34, canvas.width - 150, top + CURVE[1] - 34
    low = min(float(np.nanmin(values)) for _, _, values, _ in columns) - 0.05
    high = max(float(np.nanmax(values)) for _, _, values, _ in columns) + 0.05

    def place(x, y):
        return (left + (right - left) * x / max(1, step[-1]), bottom - (bottom - top) * (y - low) / (high - low))

    for tick in np.arange(np.ceil(low * 10) / 10, high, 0.1):
        y = place(0, tick)[1]
        draw.line([(left, y), (right, y)], GRAY)
        draw.text((GAP, y - 7), f"{tick:.1f}", INK, font(12))
    for tick in np.linspace(0, step[-1], 6):
        draw.text((place(tick, low)[0] - 8, bottom + 4), f"{tick:.0f}", INK, font(12))
    draw.text(((left + right) / 2 - 30, bottom + 18), "iteration", INK, font(12))
    for label, color, values, errors in columns:
        known = ~np.isnan(values)
        points = [place(x, y) for x, y in zip(step[known], values[known])]
        draw.line(points, color, 2)
        if errors is not None:
            for x, y, e in zip(step[known], values[known], errors[known]):
                draw.line([place(x, y - e), place(x, y + e)], color, 2)
        draw.text((right + 8, points[-1][1] - 8), label, color, font(13))


def main(arguments):
    if len(arguments) != 2:
        return "usage: picture.py RUN_DIRECTORY OUT.png"
    run_file = pathlib.Path(arguments[0]) / "run.h5"
    if not run_file.exists():
        return f"picture.py: {run_file} is not there"
    with h5py.File(run_file) as run:
        names = sorted(name for name in run["samples"] if not name.endswith("_captions"))
        if len(names) < 2:
            return f"picture.py: {run_file} has pictures of {len(names)} step(s); two are needed"
        canvas = Image.new("RGB", (CURVE[0] + GAP, 2 * (TOP + SIDE + CAPTION) + CURVE[1] + 2 * GAP), "white")
        top = GAP
        for title, name in (("before", names[0]), ("after", names[-1])):
            captions = run[f"samples/{name}_captions"].asstr()[:]
            step = int(name.removeprefix("step_"))
            row_of_pictures(canvas, top, f"{title}: iteration {step}", run[f"samples/{name}"][:COLUMNS], captions)
            top += TOP + SIDE + CAPTION
        history = run["history"]
        strict = history["eval_strict"][:]
        columns = [("training reward", ORANGE, history["reward_mean"][:], None)]
        if not np.isnan(strict).all():
            columns.append(("held-out score", BLUE, strict, history["eval_strict_se"][:]))
        curve(canvas, top + GAP, history["step"][:], columns)
    canvas.save(arguments[1], optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
