"""The loop of a program that judges images for spotlight's reward term `command`; README.md has the protocol.

    protocol.serve(judge)

`judge(prompt, width, height, rgb)` returns a finite number, larger is better. `rgb`: bytes, three per pixel, row by row
from the top. If it raises ValueError, the text is sent as an error, which ends the run. Returns when spotlight has no
more images. Whatever else is printed goes to standard error, because standard output belongs to the replies.
Standard library only.
"""

import os
import sys


def read_exactly(stream, size):
    data = stream.read(size)
    if len(data) != size:
        sys.exit(f"{sys.argv[0]}: the request ends after {len(data)} of {size} bytes")
    return data


def serve(judge):
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # also for libraries that print
    requests = sys.stdin.buffer
    while header := requests.readline():
        word, version, prompt_bytes, width, height = header.decode().split()
        if (word, version) != ("image", "1"):
            sys.exit(f"{sys.argv[0]}: this request is not of version 1: {header.decode().strip()}")
        prompt = read_exactly(requests, int(prompt_bytes)).decode()
        rgb = read_exactly(requests, 3 * int(width) * int(height))
        try:
            reply = repr(float(judge(prompt, int(width), int(height), rgb)))
        except ValueError as error:
            reply = "error: " + " ".join(str(error).split())
        print(reply, file=replies, flush=True)
