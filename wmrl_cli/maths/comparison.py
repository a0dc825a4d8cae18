"""Kinds of map side by side, judged on the same held-out groups."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wmrl_cli.maths.calibration import Fit, Floats, ScoreMap, cross_fit, fit_centred, fit_isotonic
from wmrl_cli.maths.fidelity import group_terms, pair_counts, ties
from wmrl_cli.maths.intervals import Interval
from wmrl_cli.maths.label_maps import cross_fit_labels
from wmrl_cli.maths.pair_log import PairLog
from wmrl_cli.maths.ratios import Ratios

FOLDS = 5


class MapRow(NamedTuple):
    """One kind of map on held-out groups."""

    name: str
    noise: Interval  # root mean squared error inside groups, reward units
    error: Interval  # root mean squared error over pairs
    accuracy: Interval  # share of pairs inside groups in the right order
    dead: int  # groups whose scores are all equal
    tied: int  # pairs inside groups with equal scores


def fit_identity(predicted: Floats, real: Floats) -> ScoreMap:
    """The map that changes nothing, whatever the pairs."""
    return ScoreMap.identity()


METHODS: dict[str, Fit] = {"identity": fit_identity, "isotonic": fit_isotonic, "centred": fit_centred}


def compare_maps(log: PairLog, *, seed: int = 0, draws: int = 1000, level: float = 0.95) -> list[MapRow]:
    """Each kind of map that the log allows, on the same folds of whole groups."""
    x, y, group = log.predicted, log.real, log.group.code
    scores = {name: cross_fit(x, y, group, folds=FOLDS, seed=seed, fit=fit) for name, fit in METHODS.items()}
    for kind, labels in (("task", log.task), ("category", log.category)):
        if labels is not None and len(labels.names) > 1:
            scores[f"isotonic by {kind}"] = cross_fit_labels(x, y, group, labels, folds=FOLDS, seed=seed)
    ratios = Ratios(group, log.groups, seed=seed)
    for name, score in scores.items():
        ratios.add_groups(f"{name}/noise", group_terms(score, y, group).e, np.ones(log.groups), root=True)
        ratios.add_rows(f"{name}/error", (score - y) ** 2, root=True)
        counts = pair_counts(score, y, group)[:, 0]
        ratios.add_groups(f"{name}/accuracy", counts[:, 0] + 0.5 * counts[:, 2], counts.sum(axis=1))
    found = ratios.intervals(draws=draws, level=level)
    rows = []
    for name, score in scores.items():
        tied = ties(score, group)
        noise, error, accuracy = (found[f"{name}/{measure}"] for measure in ("noise", "error", "accuracy"))
        rows.append(MapRow(name, noise, error, accuracy, tied.dead, tied.tied))
    return rows
