"""Logs with a known truth, for tests."""

import numpy as np

from wmrl_cli.maths.outcomes import RewardLadder, Status
from wmrl_cli.maths.pair_log import PairLog, make_log

STATUSES = ("malformed", "runtime_error", "timeout", "bad_submission", "valid")


def log_of(world: str, groups: int = 120, *, n: int = 8, seed: int = 0, noise: float = 0.1, tasks: int = 6) -> PairLog:
    """`groups` of `n` ladder rewards, predicted by a world model of the given kind."""
    rng = np.random.default_rng(seed)
    size = groups * n
    status = rng.choice(STATUSES, p=[0.05, 0.25, 0.15, 0.1, 0.45], size=size)
    ladder = RewardLadder()
    real = np.array([ladder.reward(Status(name), q) for name, q in zip(status, rng.random(size), strict=True)])
    time = np.arange(size) / size
    predicted = {
        "exact": real,
        "bent": 0.3 + 0.6 * real**2,  # biased, and a monotone map repairs it
        "reversed": 1 - real,
        "noise": rng.random(size),
        "blind": np.where(status == "timeout", 0.5 + 0.5 * rng.random(size), real),
        "drifting": real ** (1 + 3 * time),
        "shouting": np.round(0.5 + 0.5 * np.sign(real - 0.4)),  # only two values: differences are far too large
    }[world]
    said = np.where((world == "blind") & (status == "timeout"), "valid", status)
    group = np.repeat(np.arange(groups), n)
    return make_log(
        np.clip(predicted + rng.normal(0, noise, size), 0, 1),
        real,
        groups=[f"g{g:04d}" for g in group],
        steps=group // 2,
        tasks=[f"task{g % tasks}" for g in group],
        statuses_predicted=said,
        statuses_real=status,
        seconds=rng.uniform(5, 15, size),
    )
