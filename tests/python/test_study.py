"""study_ranks.h5 is read without our code, and its numbers agree with each other and with the table's definition."""

import subprocess

import h5py
import numpy as np
import pytest
import xarray
from conftest import BINARY, SOURCE, run_spotlight

SHORT = ["sampler/steps=4", "sampler/window_size=2", "study/prompts=5", "study/seeds=8"]


def study(folder):
    command = [str(BINARY), "study", "ranks", "-r", str(folder), *SHORT[2:]]
    result = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, timeout=280, check=False)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    return folder / "study_ranks.h5"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "run"
    run_spotlight(folder, "train/lr=1e-3", "checkpoint/every=1", "checkpoint/keep=3", *SHORT)
    return study(folder)


def test_xarray_finds_everything(path):
    with xarray.open_dataset(path, engine="h5netcdf") as data:
        assert data.rewards.dims == ("setting", "prompt", "seed")
        assert dict(data.sizes) == {"setting": 8, "prompt": 5, "seed": 8}
        for name, variable in data.variables.items():
            assert variable.attrs["units"] in ("1", "s") and variable.attrs["long_name"], name
        for name in ("software", "git_sha", "date", "machine", "input", "format_version"):
            assert data.attrs[name], name
        assert data.attrs["weight_version"] == 2 and data.attrs["kept"] == 4


def test_settings(path):
    with h5py.File(path) as file:
        names = [name.decode() for name in file["name"]]
        settings = list(zip(names, file["lag"], file["weight_version"], file["real_steps"]))
        assert settings == [("current", 0, 2, 4), ("other noise", 0, 2, 4), ("current", 0, 2, 3), ("current", 0, 2, 2),
                            ("1 older", 1, 1, 4), ("1 older", 1, 1, 3), ("1 older", 1, 1, 2), ("2 older", 2, 0, 4)]
        assert np.all(file["seed_s"][...] > 0)
        seeds = file["noise_seed"][...]
    assert not set(seeds[0]) & set(seeds[1])
    assert all(np.array_equal(seeds[0], others) for others in seeds[2:])


def correlation(x, y):
    """Pearson's; NaN where a side is constant."""
    x, y = x - x.mean(), y - y.mean()
    norm = np.sqrt((x @ x) * (y @ y))
    return (x @ y) / norm if norm > 1e-12 else np.nan


def average_ranks(values):
    return (values[:, None] > values).sum(1) + 0.5 * (values[:, None] == values).sum(1)


def pair_signs(values):
    return np.sign(values[:, None] - values)[np.triu_indices(len(values), 1)]


def tau_b(x, y):
    x, y = pair_signs(x), pair_signs(y)
    norm = np.sqrt((x @ x) * (y @ y))
    return (x @ y) / norm if norm else np.nan


def test_numbers_follow_from_the_rewards(path):
    with h5py.File(path) as file:
        data = {name: column[...] for name, column in file.items()}
    rewards = data["rewards"]
    assert np.isfinite(rewards).all() and len(np.unique(rewards)) > 8
    for setting in range(len(rewards)):
        for prompt in range(rewards.shape[1]):
            ours, reference = rewards[setting, prompt], rewards[0, prompt]
            rho = correlation(average_ranks(ours), average_ranks(reference))
            np.testing.assert_allclose(data["spearman"][setting, prompt], rho, atol=1e-12)
            np.testing.assert_allclose(data["kendall"][setting, prompt], tau_b(ours, reference), atol=1e-12)
    for name in ("spearman", "kendall", "overlap", "spread"):
        mean = np.nanmean(data[name], axis=1)
        np.testing.assert_allclose(data[f"{name}_mean"], mean, atol=1e-12)
        assert np.all(data[f"{name}_low"] <= mean + 1e-12) and np.all(mean - 1e-12 <= data[f"{name}_high"])
    defined = np.isfinite(data["spearman"][0])
    assert defined.sum() >= 2
    assert np.all(data["spearman"][0, defined] == 1) and np.all(data["kendall"][0, defined] == 1)
    # The reference's own choice is the widest that there is.
    assert np.array_equal(data["spread"][0], data["spread_best"])
    assert np.all(data["spread"] <= data["spread_best"] + 1e-12)
    assert np.all(data["spread_random"] <= data["spread_best"] + 1e-12)


def test_a_second_study_replaces_the_file(path):
    with h5py.File(path) as file:
        before = file["rewards"][...]
    path.write_bytes(b"something else")
    study(path.parent)
    with h5py.File(path) as file:
        assert np.array_equal(file["rewards"][...], before)
