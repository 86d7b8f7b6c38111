"""Short runs of the real program, shared by the tests of what it writes.

Environment (set by CMakeLists.txt): SPOTLIGHT_BINARY, SPOTLIGHT_SOURCE (repository root).
"""

import os
import pathlib
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ["SPOTLIGHT_SOURCE"])
BINARY = pathlib.Path(os.environ["SPOTLIGHT_BINARY"])
BASE = SOURCE / "inputs/models/tiny-shapes"

# Small, but with steps large enough that the trained weights are far from the base's.
SHORT = ["run/iterations=2", "group/prompts=4", "group/images=4", "explore/seeds=0", "eval/every=0", "eval/seeds=1",
         "output/grid_every=0", "train/updates=2"]


def run_spotlight(folder, *overrides):
    """Runs inputs/geneval.ini in one process, in its own run folder; returns the folder."""
    command = [str(BINARY), "inputs/geneval.ini", "-d", str(folder), *SHORT, *overrides]
    result = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, timeout=280, check=False)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}\n{result.stderr}"
    return folder


def model_folder(folder, weights):
    """A model folder as the program reads it: the base's, with the weights of another file."""
    shutil.copytree(BASE, folder)
    shutil.copy(weights, folder / "diffusion_pytorch_model.safetensors")
    return folder


@pytest.fixture(scope="session")
def full_run(tmp_path_factory):
    return run_spotlight(tmp_path_factory.mktemp("full") / "run", "train/lr=1e-3")


@pytest.fixture(scope="session")
def lora_run(tmp_path_factory):
    return run_spotlight(tmp_path_factory.mktemp("lora") / "run", "lora/rank=4", "lora/alpha=8", "train/lr=1e-2")


@pytest.fixture(scope="session")
def run_with_weights(tmp_path_factory):
    """Function: runs the program from other weights, without changing them noticeably; returns its run folder."""

    def start(weights):
        folder = tmp_path_factory.mktemp("again")
        model = model_folder(folder / "model", weights)
        return run_spotlight(folder / "run", "run/iterations=1", f"model/path={model}", "train/lr=1e-12")

    return start
