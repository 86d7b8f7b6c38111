#!/usr/bin/env python3
"""Judges whether an image shows the text that its prompt asks for: a `reward/command` with the OCR reward of Flow-GRPO.

    [reward]
    terms = command:1.0
    command = python3 scripts/rewards/ocr.py

The target is the first text in double quotes in the prompt. Target and recognised text are compared in lower case and
without white space:

    score = max(0, 1 - d / len(target))

where d is Levenshtein's distance, or 0 if the recognised text contains the target (Liu et al. 2025, arXiv 2505.05470,
section 5.1, and the reward of its implementation). A prompt without such a text is an error, which ends the run.

Recognition is by the program `tesseract` (Debian package tesseract-ocr) in its mode for sparse text, with one thread,
so that the same image always has the same score. It reads printed text; the recogniser of the paper, PaddleOCR,
reads more of what is drawn, so scores are not comparable with the paper's.
Needs nothing but tesseract and the standard library.
"""

import os
import re
import shutil
import subprocess
import sys

import protocol

QUOTED = re.compile(r'"([^"]*)"|“([^”]*)”')


def normalised(text):
    return "".join(text.lower().split())


def target_of(prompt):
    match = QUOTED.search(prompt)
    target = normalised(match.group(1) or match.group(2) or "") if match else ""
    if not target:
        raise ValueError("the OCR reward needs prompts with a text in double quotes")
    return target


def edit_distance(a, b):
    """Levenshtein's: the least number of characters to insert, delete or replace."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        above, row = row, [i]
        for j, y in enumerate(b, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (x != y)))
    return row[-1]


def score_of(recognised, target):
    """Of two normalised texts, the target not empty."""
    if target in recognised:
        return 1.0
    return max(0.0, 1 - edit_distance(recognised, target) / len(target))


def recognise(width, height, rgb):
    """All text in the image, as tesseract prints it. Raises ValueError if it fails."""
    result = subprocess.run(
        ["tesseract", "stdin", "stdout", "--psm", "11", "--dpi", "300"],
        input=b"P6 %d %d 255\n" % (width, height) + rgb,
        capture_output=True,
        env={**os.environ, "OMP_THREAD_LIMIT": "1"},
        check=False,
    )
    if result.returncode != 0:
        raise ValueError(f"tesseract ended with {result.returncode}: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout.decode(errors="replace")


def judge(prompt, width, height, rgb):
    target = target_of(prompt)
    return score_of(normalised(recognise(width, height, rgb)), target)


if __name__ == "__main__":
    if shutil.which("tesseract") is None:
        sys.exit("ocr.py: there is no program tesseract; install the Debian package tesseract-ocr")
    protocol.serve(judge)
