#!/usr/bin/env python3
"""Writes the tiny-shapes prompt lists inputs/prompts/shapes_train.jsonl and shapes_eval.jsonl.

Usage: make_prompts.py [FOLDER]      (default: inputs/prompts beside this script's folder)

One JSON object a line in GenEval's form: {"tag", "include": [{"class", "count", "color"?, "position"?}], "prompt"}.
"position": [relation, i] says that the clause's object stands in `relation` to the object of include clause i; as in
GenEval, the object that the sentence names second comes first in "include".

All prompts of six tasks over six shapes and six colours are listed, shuffled per task with a fixed seed, and split:
64 held-out prompts for evaluation, the rest for training. The six single-object prompts are in both lists. The split
is the one that the shipped model was measured with, so the generator below must not change.
Python standard library only; the output is the same bytes on every machine.
"""

import json
import pathlib
import random
import sys

SHAPES = ["circle", "square", "triangle", "cross", "ring", "heart"]
COLORS = ["red", "green", "blue", "yellow", "purple", "white"]
RELATIONS = ["left of", "right of", "above", "below"]
NUMBERS = {2: "two", 3: "three", 4: "four"}
HELD_OUT = {"single_object": 6, "two_object": 12, "counting": 10, "colors": 10, "position": 13, "color_attr": 13}


def plural(shape):
    return shape + ("es" if shape.endswith("s") else "s")


def clause(shape, count=1, **more):
    return {"class": shape, "count": count, **more}


def line(tag, phrase, *include):
    return {"tag": tag, "include": list(include), "prompt": "a photo of " + phrase}


def all_prompts():
    """Every prompt of every task, in a fixed order: {tag: [line]}."""
    pairs = [(a, b) for a in SHAPES for b in SHAPES if a != b]
    return {
        "single_object": [line("single_object", f"a {a}", clause(a)) for a in SHAPES],
        "two_object": [line("two_object", f"a {a} and a {b}", clause(a), clause(b)) for a, b in pairs],
        "counting": [
            line("counting", f"{NUMBERS[n]} {plural(a)}", clause(a, n)) for a in SHAPES for n in sorted(NUMBERS)
        ],
        "colors": [line("colors", f"a {c} {a}", clause(a, color=c)) for a in SHAPES for c in COLORS],
        "position": [
            line("position", f"a {a} {r} a {b}", clause(b), clause(a, position=[r, 0]))
            for a, b in pairs
            for r in RELATIONS
        ],
        "color_attr": [
            line("color_attr", f"a {c} {a} and a {d} {b}", clause(a, color=c), clause(b, color=d))
            for a, b in pairs
            for c in COLORS
            for d in COLORS
            if c != d
        ],
    }


def mersenne_twister(seed):
    """MT19937 seeded with one 32-bit word (Matsumoto and Nishimura 1998, init_genrand); Python's own seeding differs."""
    state = [seed]
    for i in range(1, 624):
        state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + i) & 0xFFFFFFFF)
    generator = random.Random()
    generator.setstate((3, (*state, 624), None))
    return generator


def shuffled(items, generator):
    """Fisher-Yates from the end; an index in 0..i is drawn by masking 32 random bits and rejecting what is above i."""
    items = list(items)
    for i in range(len(items) - 1, 0, -1):
        mask = (1 << i.bit_length()) - 1
        while (j := generator.getrandbits(32) & mask) > i:
            pass
        items[i], items[j] = items[j], items[i]
    return items


def split(seed=0):
    """(training lines, held-out lines)."""
    generator = mersenne_twister(seed)
    train, held_out = [], []
    for tag, lines in all_prompts().items():
        lines = shuffled(lines, generator)
        held_out += lines[: HELD_OUT[tag]]
        train += lines if tag == "single_object" else lines[HELD_OUT[tag] :]
    return train, held_out


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "inputs" / "prompts"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in zip(("shapes_train.jsonl", "shapes_eval.jsonl"), split()):
        (folder / name).write_text("".join(json.dumps(entry) + "\n" for entry in lines))
        print(f"{folder / name}: {len(lines)} prompts")


if __name__ == "__main__":
    main()
