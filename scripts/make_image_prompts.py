#!/usr/bin/env python3
"""Writes prompt lists for models that draw photos: geneval_coco_{train,eval}.jsonl and ocr_{train,eval}.txt.

Usage: make_image_prompts.py [FOLDER]      (default: inputs/prompts beside this script's folder)

geneval_coco: GenEval's six tasks over the 80 COCO classes (by the names that GenEval's detector has) and its ten
colours, one JSON object a line as in make_prompts.py; under "counting" also "exclude": one object too many is wrong.
For a judge that detects COCO classes, run as reward/command. The held-out list has GenEval's size and mix (553
prompts); it is not GenEval's own list, which may share prompts with the training list here. What a prompt asks for,
however it is phrased ("a left of b" is "b right of a"), is in one of the lists only; so all single objects are held
out.

ocr: scenes with a text in double quotes that must be read in the image, one prompt a line, for scripts/rewards/ocr.py.
No text is in both lists.

Python standard library only; the output is the same bytes on every machine.
"""

import itertools
import json
import pathlib
import sys

from make_prompts import NUMBERS, clause, line, mersenne_twister, plural, shuffled

CLASSES = """person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant,
stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, backpack,
umbrella, handbag, tie, suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove,
skateboard, surfboard, tennis racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich,
orange, broccoli, carrot, hot dog, pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv,
laptop, computer mouse, tv remote, computer keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book,
clock, vase, scissors, teddy bear, hair drier, toothbrush"""
CLASSES = " ".join(CLASSES.split()).split(", ")
COLORS = ["red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white"]
COLORLESS = {"person", "orange"}  # "a red person", "an orange orange"
PAIRS = {"skis", "scissors"}
IRREGULAR = {
    "person": "people",
    "sheep": "sheep",
    "knife": "knives",
    "computer mouse": "computer mice",
    "broccoli": "broccoli",
    "skis": "pairs of skis",
    "scissors": "pairs of scissors",
}
MIRRORED = {"left of": "right of", "above": "below"}

# Prompts of a task in (the training, the held-out) list.
SIZES = {
    "single_object": (0, 80),
    "two_object": (240, 99),
    "counting": (160, 80),
    "colors": (240, 94),
    "position": (480, 100),
    "color_attr": (360, 100),
}

SCENES = """a street photo of a shop with a sign that reads "{}"
a neon sign that says "{}" on a brick wall at night
a chalkboard in front of a cafe with the words "{}"
a road sign beside an empty highway that reads "{}"
a birthday cake with "{}" written in icing
a white coffee mug with "{}" printed on it
a book on a wooden table, its cover titled "{}"
a t-shirt on a hanger with the text "{}" across the chest
a cardboard box in a warehouse, stamped "{}"
a wooden board at a trailhead with "{}" carved into it
a movie poster with the title "{}" in large letters
a newspaper on a breakfast table with the headline "{}"
a billboard above a busy road that shows "{}"
a sticky note on a refrigerator that says "{}"
graffiti on a concrete wall that spells "{}"
a train station display that shows "{}"
a postcard of a beach with "{}" along the top
a brass plate on an office door, engraved "{}"
a banner between two trees that reads "{}"
a laptop screen with the words "{}" in a large font
a jar of jam with a handwritten label "{}"
a delivery van with "{}" painted on its side
a ticket lying on a table, printed with "{}"
a whiteboard in a classroom on which "{}" is written
an astronaut on the moon who holds a sign "{}"
a robot that holds up a card with "{}"
a cat asleep beside a small sign that reads "{}"
a lighthouse with "{}" painted around its tower
a medal on a ribbon, engraved with "{}"
a beach at low tide with "{}" drawn into the sand""".splitlines()
FIRST = """Fresh Quiet Golden Silver Open Happy Hidden Green Little Grand Rapid Gentle Brave Bright Crystal Daily Early
Electric Final Forest Frozen Harbor Island Lucky Midnight Modern Mountain Morning Northern Ocean Old Orange Perfect
Purple River Royal Secret Simple Summer Velvet Winter Wild Wooden Yellow""".split()
SECOND = """Bakery Books Bridge Coffee Corner Dreams Express Flowers Garden Gallery House Kitchen Lake Lantern Library
Lights Market Museum Music Paper Park Pizza Road School Season Spring Station Stories Studio Tea Theater Tickets Tours
Toys Valley Village Voyage Window Workshop""".split()
PHRASES = """Do Not Enter, Mind The Gap, Welcome Home, Thank You, Good Luck, Closed On Sunday, Keep Left, No Parking,
Wet Paint, Push To Open, Handle With Care, Happy New Year, Out Of Order, Self Service, Slow Down, Best Before June,
Ring The Bell, Stay Curious, Never Give Up, Made With Love, Sold Out, Grand Opening, Free Samples, Quiet Please,
Watch Your Step, Made By Hand, Lost And Found, See You Soon, Follow Me, Dream Big, Hello World, Meet Me Here,
Caution Hot, Please Wait, Game Over, Chapter One, Back In Five Minutes, Under Construction, Exit Only, Staff Only"""
PHRASES = " ".join(PHRASES.split()).split(", ")
NUMBERED = ["Gate {}", "Platform {}", "Room {}", "Route {}", "Save {}", "Level {}", "Open Since {}", "Lot {}"]
OCR_SIZES = (1500, 200)


def thing(name, color=""):
    """ "a red dog", "an apple", "a pair of black scissors"."""
    words = f"{color} {name}".strip()
    if name in PAIRS:
        return "a pair of " + words
    return ("an " if words[0] in "aeiou" else "a ") + words


def things(name):
    """ "dogs", "wine glasses"."""
    if name in IRREGULAR:
        return IRREGULAR[name]
    return name + "es" if name.endswith(("ch", "sh")) else plural(name)


def position(a, b, relation, mirrored):
    """`a` stands in `relation` to `b`, or the same said of b."""
    if mirrored:
        a, b, relation = b, a, MIRRORED[relation]
    return line("position", f"{thing(a)} {relation} {thing(b)}", clause(b), clause(a, position=[relation, 0]))


def two_objects(a, b):
    return line("two_object", f"{thing(a)} and {thing(b)}", clause(a), clause(b))


def counting(a, count):
    entry = line("counting", f"{NUMBERS[count]} {things(a)}", clause(a, count))
    prompt = entry.pop("prompt")  # comes last in a line
    return {**entry, "exclude": [clause(a, count + 1)], "prompt": prompt}


def colored_pair(first, second):
    (a, c), (b, d) = first, second
    return line("color_attr", f"{thing(a, c)} and {thing(b, d)}", clause(a, color=c), clause(b, color=d))


def geneval_lists(generator):
    """(training lines, held-out lines). Each task draws among different things to ask for, then how to say them."""

    def coin():
        return generator.getrandbits(32) & 1

    def swapped(pair):
        return pair[::-1] if coin() else pair

    colored = [(a, c) for a in CLASSES if a not in COLORLESS for c in COLORS]
    pairs = list(itertools.combinations(CLASSES, 2))
    asked = {
        "single_object": CLASSES,
        "two_object": pairs,
        "counting": [(a, n) for a in CLASSES for n in sorted(NUMBERS)],
        "colors": colored,
        "position": [(a, b, r) for a in CLASSES for b in CLASSES if a != b for r in MIRRORED],
        "color_attr": [(p, q) for p, q in itertools.combinations(colored, 2) if p[0] != q[0] and p[1] != q[1]],
    }
    say = {
        "single_object": lambda a: line("single_object", thing(a), clause(a)),
        "two_object": lambda pair: two_objects(*swapped(pair)),
        "counting": lambda item: counting(*item),
        "colors": lambda item: line("colors", thing(*item), clause(item[0], color=item[1])),
        "position": lambda item: position(*item, mirrored=coin()),
        "color_attr": lambda pair: colored_pair(*swapped(pair)),
    }
    train, held_out = [], []
    for tag, (train_size, held_out_size) in SIZES.items():
        lines = [say[tag](item) for item in shuffled(asked[tag], generator)[: held_out_size + train_size]]
        held_out += lines[:held_out_size]
        train += lines[held_out_size:]
    return train, held_out


def ocr_lists(generator):
    """(training prompts, held-out prompts): a third of the texts in capitals, the scenes in turn."""
    texts = [f"{a} {b}" for a in FIRST for b in SECOND]
    texts += PHRASES + [form.format(n) for form in NUMBERED for n in range(11, 100, 4)] + SECOND
    prompts = []
    for index, text in enumerate(shuffled(texts, generator)[: sum(OCR_SIZES)]):
        prompts.append(SCENES[index % len(SCENES)].format(text.upper() if generator.getrandbits(32) % 3 == 0 else text))
    return prompts[OCR_SIZES[1] :], prompts[: OCR_SIZES[1]]


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "inputs" / "prompts"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    folder.mkdir(parents=True, exist_ok=True)
    geneval = [[json.dumps(entry) for entry in entries] for entries in geneval_lists(mersenne_twister(1))]
    for stem, suffix, lists in (("geneval_coco", "jsonl", geneval), ("ocr", "txt", ocr_lists(mersenne_twister(2)))):
        for part, lines in zip(("train", "eval"), lists):
            path = folder / f"{stem}_{part}.{suffix}"
            path.write_text("".join(entry + "\n" for entry in lines))
            print(f"{path}: {len(lines)} prompts")


if __name__ == "__main__":
    main()
