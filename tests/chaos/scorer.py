"""A program that judges images by a number of their bytes, and fails as SPOTLIGHT_CHAOS_SCORER tells it:
"crash N" ends it at its Nth image, "slow SEED" makes it wait for 100 ms at every tenth image or so."""

import os
import pathlib
import random
import sys
import time
import zlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts/rewards"))
import protocol  # noqa: E402

act, _, number = os.environ.get("SPOTLIGHT_CHAOS_SCORER", "none 0").partition(" ")
chance = random.Random(int(number) + os.getpid())
judged = 0


def judge(prompt, width, height, rgb):
    global judged
    judged += 1
    if act == "crash" and judged == int(number):
        os._exit(9)
    if act == "slow" and chance.random() < 0.1:
        time.sleep(0.1)
    return zlib.crc32(prompt.encode() + rgb) / 2**32


protocol.serve(judge)
