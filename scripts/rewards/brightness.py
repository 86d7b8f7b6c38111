#!/usr/bin/env python3
"""Judges images by their mean value, 0 (black) to 1 (white): the smallest example of a `reward/command`.

[reward]
terms = command:1.0
command = python3 scripts/rewards/brightness.py
"""

import protocol


def judge(_prompt, _width, _height, rgb):
    return sum(rgb) / (255 * len(rgb))


if __name__ == "__main__":
    protocol.serve(judge)
