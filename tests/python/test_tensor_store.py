"""The tensor store is read without our code, while it is written and afterwards: h5py and zlib.

Environment (set by CMakeLists.txt): SPOTLIGHT_WRITE_TENSOR_STORE, the program that makes one.
"""

import os
import subprocess
import zlib

import h5py
import numpy as np
import pytest

WINDOW = 2
NO_ROW = 0xFFFFFFFF


@pytest.fixture(scope="module", params=["open", "closed"])
def path(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    command = [os.environ["SPOTLIGHT_WRITE_TENSOR_STORE"], str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "written\n"
        if request.param == "open":
            yield folder / "iteration_000001_00.h5"
        writer.stdin.close()
        assert writer.wait(timeout=30) == 0
    if request.param == "closed":
        yield folder / "iteration_000001_00.h5"


def newest_records(file):
    """The newer of each used slot's two records, as docs/files.md has it."""
    records = file["records"][...]
    newest = np.take_along_axis(records, records["sequence"].argmax(1)[:, None], 1)[:, 0]
    return newest[newest["sequence"] > 0]


def test_one_line_reads_a_slot(path):
    latents = h5py.File(path)["latents"][1]
    assert latents.shape == (WINDOW + 3, 6, 4) and latents.dtype == np.float32


def test_records_say_how_far_each_request_is(path):
    with h5py.File(path) as file:
        assert file.attrs["format"].startswith("spotlight tensor store ") and file.attrs["run"] == "test"
        records = newest_records(file)
    assert records["prompt_index"].tolist() == [1, 2, 3]
    assert records["finished"].tolist() == [1, 0, 0]
    assert records["steps"][1:].tolist() == [3, 2]
    assert records["kind"].tolist() == [0, 0, 1]
    assert records["seed"].tolist() == [2**40 + i for i in (1, 2, 3)]
    assert records["window_rows"].tolist() == [3, 1, 0]
    assert records["newest"].tolist() == [NO_ROW, 1, WINDOW + 2]
    assert records["reward"][0] == 0.1 and records["terms"][0].tolist() == [0.1, -1e-300, 0.5]
    np.testing.assert_array_equal(records["log_probs"][0], np.float32([-1 / 4, -1 / 5]))
    assert records["coefficients"][0][1].tolist() == [0.5, 1, 0, 0.25, 0, 0]


def test_checksums_are_zlibs(path):
    with h5py.File(path) as file:
        records, latents = newest_records(file), file["latents"][...]
    checked = 0
    for slot, record in enumerate(records):
        for row in (*range(record["window_rows"]), record["newest"]):
            if row != NO_ROW:
                assert zlib.crc32(latents[slot, row].tobytes()) == record["row_crc32"][row], (slot, row)
                checked += 1
        blank = record.copy()
        blank["crc32"] = 0
        assert zlib.crc32(blank.tobytes()) == record["crc32"], slot
    assert checked == 6
