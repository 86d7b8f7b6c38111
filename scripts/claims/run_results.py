"""What a finished run says about itself: its held-out scores with the time and money spent until each."""

import dataclasses

import h5py
import numpy as np

SMOOTH = 3  # evaluations whose mean must reach the target: one alone has a standard error of 0.03


@dataclasses.dataclass
class RunResult:
    steps: np.ndarray  # [E] iterations before each evaluation
    scores: np.ndarray  # [E]
    wall: np.ndarray  # [E] seconds of the iterations before it
    cost: np.ndarray  # [E] currency
    columns: dict  # name -> mean over the iterations; what the run has nothing of is not there
    program: str = ""  # git_sha of the build

    def reached(self, target):
        """Number of the first evaluation that ends a mean of SMOOTH of at least `target`; None: never."""
        if self.scores.size < SMOOTH:
            return None
        means = np.convolve(self.scores, np.ones(SMOOTH) / SMOOTH, "valid")
        hits = np.flatnonzero(means >= target)
        return None if hits.size == 0 else int(hits[0]) + SMOOTH - 1


def read_run(directory, iterations):
    """None: there is no such run, or it has not finished its iterations."""
    file = directory / "run.h5"
    if not file.exists():
        return None
    with h5py.File(file) as run:
        history = {name: column[:] for name, column in run["history"].items()}
        program = run.attrs.get("git_sha", "")
    if history["step"].size == 0 or history["step"][-1] != iterations:
        return None
    # Row i tells the time and cost of iteration i; an evaluation in it is of what the iterations before have learnt.
    seconds = np.nan_to_num(history["time_step_s"])
    before = np.concatenate([[0.0], np.cumsum(seconds)])[: seconds.size]
    spent = np.concatenate([[0.0], np.fmax.accumulate(np.nan_to_num(history["cost_price"]))])[: seconds.size]
    known = ~np.isnan(history["eval_strict"])
    program = program.decode() if isinstance(program, bytes) else str(program)
    return RunResult(history["step"][known], history["eval_strict"][known], before[known], spent[known],
                     means(history, iterations), program)  # fmt: skip


def means(history, iterations):
    columns = {name: float(np.nanmean(values)) for name, values in history.items() if not np.isnan(values).all()}
    tail, step = np.nansum(history["time_explore_tail_s"]), np.nansum(history["time_step_s"])
    train = np.nansum(history["time_train_s"]) - tail
    columns["train_alone_s"] = float(train / iterations)
    columns["train_pair_ms"] = float(1000 * train / np.nansum(history["policy_pairs"]))
    if "explore_seeds" in columns:  # it explored beside training
        columns["wait"] = float(tail / step)
    else:
        columns.pop("explore_images", None)
    spot = history["cost_spot_rank_h"][-1]
    if spot > 0:
        columns["spot_idle"] = float(history["cost_spot_idle_h"][-1] / spot)
    return columns
