"""inputs/baselines: each differs from spotlight.ini only where its name says, and does what its head says."""

import configparser
import subprocess

import h5py
import numpy as np
import pytest
from conftest import BINARY, SOURCE

INPUTS = {path.stem: path for path in sorted((SOURCE / "inputs/baselines").glob("*.ini"))}
ITERATIONS, PROMPTS, IMAGES = 4, 3, 4
SHORT = [f"run/iterations={ITERATIONS}", f"group/prompts={PROMPTS}", f"group/images={IMAGES}", "sampler/steps=5",
         "sampler/window_size=2", "eval/every=0", "eval/seeds=1", "eval/steps=4", "train/updates=2",
         "sampler/batch=2", "device/threads=1"]  # fmt: skip
COORDINATOR, TRAINER = 0, 1


def settings(path):
    parser = configparser.ConfigParser(inline_comment_prefixes=("#",))
    parser.read(path)
    return {f"{section}/{key}": value for section in parser.sections() for key, value in parser[section].items()}


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    """Function: {table: {column: values}} of a short run of a baseline's input, played once."""
    played = {}

    def start(name, *more, ranks=4):
        if name not in played:
            folder = tmp_path_factory.mktemp(name) / "run"
            command = [str(SOURCE / "scripts/mpirun.sh"), "-np", str(ranks), str(BINARY), str(INPUTS[name])]
            command += ["-d", str(folder), *SHORT, *more]
            result = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, timeout=280, check=False)
            assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}\n{result.stderr}"
            with h5py.File(folder / "run.h5") as run:
                tables = ("history", "rollouts", "explored", "decisions")
                played[name] = {table: {key: column[:] for key, column in run[table].items()} for table in tables}
        return played[name]

    return start


def test_only_what_is_compared_differs():
    assert len(INPUTS) == 6
    ours = settings(INPUTS["spotlight"])
    for name, path in INPUTS.items():
        theirs = settings(path)
        different = {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}
        allowed = {"ranks/spot_rollouts": "reserved_rollouts", "train/advantage_from": "critical"}
        assert all(key.startswith("explore/") or allowed.get(key) == name for key in different), (name, different)


def test_every_group_is_whole(play):
    for name in INPUTS:
        more = {"critical": ["explore/seeds=12"], "unplanned": ["explore/seeds=8"]}.get(name, [])
        rollouts = play(name, *more, ranks=2 if name == "reserved" else 4)["rollouts"]
        assert rollouts["step"].size == ITERATIONS * PROMPTS * IMAGES, name
        assert np.all(rollouts["weight_version"] == rollouts["step"]), name


def test_spotlight_plans_and_keeps_what_it_explored(play):
    run = play("spotlight")
    explored, decisions, rollouts = run["explored"], run["decisions"], run["rollouts"]
    assert explored["step"].size > 0
    assert np.all(explored["weight_version"] == explored["step"])
    assert np.all(explored["rank"] > TRAINER)
    for step in np.unique(decisions["step"]):
        assert decisions["chosen"][decisions["step"] == step].sum() <= 1
    # Whatever was kept is rolled out in the iteration after.
    kept = explored["kept"] == 1
    assert kept.any() and np.all(explored["control"][~kept] == 0)
    wanted = set(zip(explored["step"][kept] + 1, explored["prompt_index"][kept], explored["seed"][kept]))
    done = set(zip(rollouts["step"], rollouts["prompt_index"], rollouts["seed"]))
    assert wanted <= done
    assert run["history"]["explore_images"][: ITERATIONS - 1].sum() == explored["step"].size


def test_unplanned_always_takes_one_arm(play):
    decisions = play("unplanned", "explore/seeds=8")["decisions"]
    assert set(zip(decisions["seeds"], decisions["real_steps"])) == {(8, 5)}
    assert np.all(decisions["chosen"] == 1)


def test_critical_trains_on_the_halves_of_what_it_rolled_out(play):
    run = play("critical", "explore/seeds=12")
    assert run["explored"]["step"].size == 0
    rollouts = run["rollouts"]
    number = rollouts["seed"] & 0xFFFFFFFF
    assert number.max() >= IMAGES and number.max() < 12
    # Advantages are those among all 12: not centred on the mean of the 4.
    rewards, advantages = (rollouts[name].reshape(-1, IMAGES) for name in ("reward", "advantage"))
    spread = rewards.std(axis=1) > 0
    assert spread.any() and np.all(advantages[~spread] == 0)
    # They still are one line of the rewards: a group's mean and deviation do not depend on the image.
    for reward, advantage in zip(rewards[spread], advantages[spread]):
        slope, offset = np.polyfit(reward, advantage, 1)
        assert np.allclose(slope * reward + offset, advantage, atol=1e-4) and slope > 0
    assert np.abs(advantages[spread].mean(axis=1)).max() > 0.05


def test_spot_ranks_that_only_explore(play):
    run = play("reserved_rollouts")
    assert np.all(run["rollouts"]["rank"] == TRAINER)
    assert np.all(run["explored"]["rank"] > TRAINER)


def test_without_exploration(play):
    for name in ("rollouts_only", "reserved"):
        run = play(name, ranks=2 if name == "reserved" else 4)
        assert run["explored"]["step"].size == 0 and run["decisions"]["step"].size == 0, name
        assert np.all((run["rollouts"]["seed"] & 0xFFFFFFFF) < IMAGES), name
    assert np.all(play("reserved", ranks=2)["rollouts"]["rank"] == TRAINER)
