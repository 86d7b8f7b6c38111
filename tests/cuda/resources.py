"""Registers, shared memory and spills of every CUDA kernel, as ptxas reported them while the plug-in was built.

    resources.py BUILD_DIR TABLE RECORDED

Reads BUILD_DIR/**/*.ptxas (cmake/record_ptxas.py) and writes TABLE: one line a kernel and architecture. RECORDED is such
a table kept with the sources: what differs from it is printed. Exit code 1 if a kernel spills registers to memory, or
if there is no report.
"""

import pathlib
import re
import subprocess
import sys

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(sm_\w+)'")
SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def kernels(report):
    """Yields (name, architecture, registers, static shared bytes, stack bytes, spilled bytes) of one report."""
    entry, stack, spilled = None, 0, 0
    for line in report.splitlines():
        if match := ENTRY.search(line):
            entry = match.groups()
        elif match := SPILL.search(line):
            stack, spilled = int(match.group(1)), int(match.group(2)) + int(match.group(3))
        elif entry and (match := USED.search(line)):
            shared = SHARED.search(line)
            yield (*entry, int(match.group(1)), int(shared.group(1)) if shared else 0, stack, spilled)
            entry = None


def readable(names):
    """Symbols -> C++ names without parameters and namespaces; c++filt is part of binutils, as is the linker."""
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    short = {}
    for symbol, name in zip(names, text.splitlines()):
        name = name.replace("(anonymous namespace)::", "").replace("spotlight::cuda::", "").replace("spotlight::", "")
        name = re.sub(r"^void ", "", name)
        depth, end = 0, len(name)
        for position, letter in enumerate(name):
            depth += (letter == "<") - (letter == ">")
            if letter == "(" and depth == 0:
                end = position
                break
        short[symbol] = re.sub(r"\((?:int|bool)\)", "", name[:end]).replace(" ", "")
    return short


def main(build, table, recorded):
    rows = {}
    for report in sorted(pathlib.Path(build).rglob("*.ptxas")):
        source = report.name.split(".")[0]
        for name, architecture, *figures in kernels(report.read_text(encoding="utf-8")):
            rows[(source, name, architecture)] = figures
    if not rows:
        print(f"{build}: no report of ptxas (*.ptxas); build the target spotlight_cuda first")
        return 1
    names = readable(sorted({name for _, name, _ in rows}))
    heading = "# registers, static shared memory, stack and spilled bytes of a thread or block: source architecture kernel"
    lines = sorted(
        f"{registers:4d} {shared:6d} {stack:4d} {spilled:4d}  {source} {architecture} {names[name]}"
        for (source, name, architecture), (registers, shared, stack, spilled) in rows.items()
    )
    lines.sort(key=lambda line: line.split(None, 4)[4])
    pathlib.Path(table).write_text("\n".join([heading, *lines, ""]), encoding="utf-8")

    kept = pathlib.Path(recorded)
    before = set(kept.read_text(encoding="utf-8").splitlines()[1:]) if kept.exists() else set()
    for mark, some in (("-", before - set(lines)), ("+", set(lines) - before)):
        for line in sorted(some, key=lambda text: text.split(None, 4)[4]):
            print(mark, line)
    spilled = [line for line in lines if int(line.split()[3]) > 0]
    for line in spilled:
        print("spills:", line)
    print(f"{len(lines)} kernels in {table}, {len(spilled)} spill")
    return 1 if spilled else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
