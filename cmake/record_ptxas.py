"""Runs a compile command of nvcc and keeps what ptxas reports, quietly.

    record_ptxas.py COMMAND ...      COMMAND has `-o OBJECT` and `-Xptxas -v`

What ptxas says on standard error goes to OBJECT.ptxas; all other output passes, and so does everything if the command
fails. Exit code: the command's.
"""

import pathlib
import subprocess
import sys

# Lines of a report, besides those that begin with "ptxas info": the two below a function's name.
CONTINUED = ("bytes stack frame", "bytes spill stores")


def main(command):
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    lines = result.stderr.splitlines(keepends=True)
    report = [line for line in lines if line.startswith("ptxas info") or any(mark in line for mark in CONTINUED)]
    if result.returncode == 0 and report:
        pathlib.Path(command[command.index("-o") + 1] + ".ptxas").write_text("".join(report), encoding="utf-8")
        lines = [line for line in lines if line not in report]
    sys.stderr.write("".join(lines))
    return result.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
