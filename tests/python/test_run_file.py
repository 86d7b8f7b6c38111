"""run.h5 is read without our code: h5py, xarray and h5dump."""

import json
import shutil
import subprocess

import h5py
import numpy as np
import pytest
import xarray


def test_h5py_finds_provenance_and_history(full_run):
    with h5py.File(full_run / "run.h5") as file:
        for name in ("software", "softwareVersion", "date", "machine", "git_sha", "format_version", "input"):
            assert name in file.attrs, name
        steps = file["history/step"]
        assert steps.is_scale
        count = len(steps)
        assert count >= 2 and np.all(np.diff(steps[...]) > 0)
        for name, column in file["history"].items():
            assert column.shape == (count,), name
            if name != "step":
                assert column.attrs["units"], name
                assert column.dims[0][0] == steps, name


def test_full_resolved_input_is_kept(full_run):
    with h5py.File(full_run / "run.h5") as file:
        text = file.attrs["input"]
    text = text.decode() if isinstance(text, bytes) else str(text)
    assert "[sampler]" in text and "noise_level" in text
    assert "group" in text and "images" in text


def test_xarray_opens_history(full_run):
    with xarray.open_dataset(full_run / "run.h5", group="history", engine="h5netcdf") as history:
        strict = history["eval_strict"]
        assert strict.dims == ("step",)
        evaluated = strict.values[~np.isnan(strict.values)]
        assert len(evaluated) >= 2  # before and after
        assert np.all((evaluated >= 0) & (evaluated <= 1))
        assert strict.attrs["units"] == "1"


def test_history_log_agrees(full_run):
    records = [json.loads(line) for line in (full_run / "history.jsonl").read_text(encoding="utf-8").splitlines()]
    logged = [record["eval_strict"] for record in records if record.get("eval_strict") is not None]
    with h5py.File(full_run / "run.h5") as file:
        strict = file["history/eval_strict"][...]
    np.testing.assert_allclose(logged, strict[~np.isnan(strict)], rtol=1e-6)


@pytest.mark.skipif(shutil.which("h5dump") is None, reason="h5dump is not installed (Debian package hdf5-tools)")
def test_h5dump_prints_it(full_run):
    result = subprocess.run(["h5dump", "-H", str(full_run / "run.h5")], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    for group in ("history", "rollouts", "rewards", "prompts", "samples"):
        assert f'GROUP "{group}"' in result.stdout
