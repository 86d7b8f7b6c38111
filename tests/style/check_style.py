"""Rules of the source tree that no compiler checks. Standard library only.

    check_style.py ROOT RULE          RULE: one of the keys of RULES below
    check_style.py ROOT inputs BINARY every .ini in inputs passes `BINARY --check`

Prints one line per violation ("path:line: what is wrong and what is right"). Exit code 0: none; 1: some; 77: the rule
could not be checked here, with the reason (ctest shows the test as skipped).
"""

import pathlib
import re
import shutil
import subprocess
import sys

SKIPPED = 77
MAX_LINES = 600
CPP = {".hpp", ".cpp", ".cu", ".cuh"}
SOURCE = CPP | {".py", ".sh", ".cmake"}
SOURCE_FOLDERS = ("src", "kernels", "io", "tests", "scripts", "cmake", "slurm")

EVERYTHING = {"base", "config", "comm", "schedule", "plan", "model", "rollout", "reward", "train", "publish", "sim", "record",
              "driver", "kernels", "io"}
# Room -> rooms that it may include, itself aside (docs/design.md, "Layout").
MAY_INCLUDE = {
    "base": set(),
    "config": {"base"},
    "comm": {"base", "config"},
    "schedule": {"base", "config"},
    "plan": {"base", "config"},
    "model": {"base", "kernels"},
    "rollout": {"base", "config", "kernels", "model", "comm"},
    "reward": {"base", "config"},
    "train": {"base", "config", "kernels", "model", "comm"},
    "publish": {"base", "model", "comm"},
    "record": {"base", "config", "io", "model", "plan", "reward"},
    "sim": {"base", "config", "schedule", "plan"},
    "driver": EVERYTHING,
    "kernels": {"base"},
    "io": {"base"},
    "main": EVERYTHING,  # src/main.cpp
}
# Third-party header -> the only rooms with it.
THIRD_PARTY = [
    (re.compile(r"(mpi(-ext)?\.h|nccl\.h|zmq\.hpp?)$"), {"comm"}),
    (re.compile(r"(hdf5(_hl)?|H5\w*|png|zlib)\.h$|nlohmann/"), {"io"}),
    (re.compile(r"Kokkos_|oneapi/dnnl|dnnl|cuda|cudnn|cublas|nvtx"), {"kernels"}),
    (re.compile(r"CLI/|INIReader|ini\.h$"), {"config", "main"}),
]
# Rooms that decide get time and data as arguments, so that a simulator can drive them.
PURE_ROOMS = {"schedule", "plan"}
IMPURE = re.compile(r"(chrono|ctime|thread|mutex|condition_variable|future|random|fstream|iostream|cstdio|filesystem)$")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
# Written in two halves so that this file does not break its own rule.
OPEN_ENDS = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
MACHINE_PATHS = re.compile(r"/(wo" r"rk|ho" r"me|ro" r"ot)/\w")
VAGUE = r"(Mana" r"ger|Hel" r"per|Ut" r"ils?)"
VAGUE_TYPE = re.compile(r"\b(?:class|struct|enum|enum class|using|concept|namespace)\s+(\w*" + VAGUE + r"\w*)")
VAGUE_FILE = re.compile(r"(?:^|_)" + VAGUE.lower() + r"(?:_|s|\.|$)")


def files(root, folders=SOURCE_FOLDERS, suffixes=SOURCE):
    """Source files under the given folders, sorted, without test data; CMakeLists.txt counts as CMake."""
    found = []
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            relative = path.relative_to(root)
            if "data" in relative.parts or "__pycache__" in relative.parts or not path.is_file():
                continue
            if path.suffix in suffixes or (path.name == "CMakeLists.txt" and ".cmake" in suffixes):
                found.append(path)
    return found


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


def room_of(relative):
    parts = relative.parts
    if parts[0] != "src":
        return parts[0]
    return parts[1] if len(parts) > 2 else "main"


def check_includes(root):
    for path in files(root, ("src", "kernels", "io"), CPP):
        relative = path.relative_to(root)
        room = room_of(relative)
        if room not in MAY_INCLUDE:
            yield f"{relative}:1: folder '{room}' has no row in the include table of tests/style/check_style.py"
            continue
        for number, line in enumerate(lines(path), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            kind, name = match.groups()
            where = f"{relative}:{number}"
            for pattern, rooms in THIRD_PARTY:
                if pattern.match(name) and room not in rooms:
                    yield f"{where}: <{name}> belongs in {', '.join(sorted(rooms))} only"
            if room in PURE_ROOMS and kind == "<" and IMPURE.match(name):
                yield f"{where}: {room} decides without clock, threads and files; take <{name}>'s results as arguments"
            if kind == "<":
                continue
            target = name.split("/")[0] if "/" in name else ""
            if target not in EVERYTHING:
                if not any(pattern.match(name) for pattern, _ in THIRD_PARTY):
                    yield f'{where}: "{name}" must begin with its folder ("base/...", "kernels/...")'
            elif target != room and target not in MAY_INCLUDE[room]:
                allowed = ", ".join(sorted(MAY_INCLUDE[room])) or "nothing of ours"
                yield f'{where}: {room} may not include "{name}"; allowed: {allowed}'


def check_length(root):
    for path in files(root):
        count = len(lines(path))
        if count > MAX_LINES:
            yield f"{path.relative_to(root)}:{count}: {count} lines; split it by meaning below {MAX_LINES}"


def check_words(root):
    for path in files(root) + [p for p in (root / "CMakeLists.txt", root / "README.md") if p.exists()]:
        relative = path.relative_to(root)
        if VAGUE_FILE.search(path.name.lower()):
            yield f"{relative}:1: name the file after what it holds"
        for number, line in enumerate(lines(path), 1):
            if OPEN_ENDS.search(line):
                yield f"{relative}:{number}: open end in the source; do it, or file an issue"
            if MACHINE_PATHS.search(line):
                yield f"{relative}:{number}: path of one machine"
            match = VAGUE_TYPE.search(line)
            if match and path.suffix in CPP:
                yield f"{relative}:{number}: '{match.group(1)}': name the type after what it does"


def has_contract(path):
    """True if the first thing in the file, shebang and blank lines aside, is a comment or docstring with words."""
    marks = {".py": ('"""', "'''"), ".sh": ("#",), ".cmake": ("#",)}.get(path.suffix, ("//", "/*"))
    for line in lines(path):
        text = line.strip()
        if text and not text.startswith("#!"):
            return text.startswith(marks) and re.search(r"\w{2}", text) is not None
    return False


def check_contract(root):
    for path in files(root, ("src", "kernels", "io", "scripts", "cmake")):
        if path.name == "CMakeLists.txt":
            continue
        # A source file's contract may stand in its header: linear_onednn.cpp answers to linear.hpp.
        words = path.stem.split("_")
        headers = ("_".join(words[:count]) + ".hpp" for count in range(1, len(words) + 1))
        if path.suffix != ".hpp" and any(path.with_name(header).exists() for header in headers):
            continue
        if not has_contract(path):
            yield f"{path.relative_to(root)}:1: begin with what the file does, its inputs and outputs, and its errors"


def check_format(root):
    paths = files(root, ("src", "kernels", "io", "tests", "scripts"), CPP)
    if not paths:
        return
    command = ["clang-format", "--dry-run", "-Werror", "--style=file", *(str(path.relative_to(root)) for path in paths)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    if result.returncode != 0:
        places = dict.fromkeys(re.findall(r"^(\S+?:\d+):\d+: error", result.stderr, re.MULTILINE))
        yield from (f"{place}: not as .clang-format has it; clang-format -i" for place in places)
        if not places:
            yield result.stderr


def check_inputs(root, binary):
    inputs = sorted((root / "inputs").rglob("*.ini"))
    if not inputs:
        yield "inputs: no .ini file"
    for path in inputs:
        result = subprocess.run([binary, str(path), "--check"], capture_output=True, text=True, cwd=root, check=False)
        if result.returncode != 0:
            yield f"{path.relative_to(root)}: --check ends with {result.returncode}: {result.stdout}{result.stderr}"


RULES = {
    "includes": check_includes,
    "length": check_length,
    "words": check_words,
    "contract": check_contract,
    "format": check_format,
    "inputs": check_inputs,
}


def main(arguments):
    root, rule = pathlib.Path(arguments[0]).resolve(), arguments[1]
    if rule == "format" and shutil.which("clang-format") is None:
        print("skipped: clang-format is not installed (Debian package clang-format)")
        return SKIPPED
    violations = list(RULES[rule](root, *arguments[2:]))
    print("\n".join(violations))
    print(f"{rule}: {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
