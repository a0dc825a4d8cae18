"""A log of scored trajectories as arrays: what replay, diagnosis and the anchor-fraction study read.

Axes: N pairs in time order, M simulated trajectories without a real score.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from wmrl_cli.maths.calibration import Floats
from wmrl_cli.maths.intervals import Ints


class Labels(NamedTuple):
    """A column of names as numbers: `names[code[i]]` is row i's."""

    names: Sequence[str]
    code: Ints


def in_order(labels: npt.ArrayLike) -> Labels:
    """The labels numbered by first appearance.

    Examples
    --------
    >>> in_order(["b", "a", "b"]).code
    array([0, 1, 0])
    """
    names, first, code = np.unique(np.asarray(labels), return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    return Labels([str(name) for name in names[order]], place[code].astype(np.int64))


@dataclass(frozen=True, kw_only=True, eq=False)
class PairLog:
    """Pairs in time order, scores in [0, 1]; what the log does not say is None.

    Without groups every pair is its own group, and what happens inside groups is undefined. Without steps
    every group is its own step.
    """

    predicted: Floats
    real: Floats
    group: Labels  # numbered by first appearance
    step: Ints  # non-decreasing
    has_groups: bool = True
    task: Labels | None = None
    category: Labels | None = None
    status_predicted: Labels | None = None
    status_real: Labels | None = None
    trajectory: Sequence[str] | None = None
    seconds: Floats | None = None  # real execution, NaN where not measured
    simulated: Floats = field(default_factory=lambda: np.empty(0))  # shape (M,): predicted, never executed
    simulated_group: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))  # numbered from 0
    dropped: Mapping[str, int] = field(default_factory=dict)  # rows that make no pair, by reason

    @property
    def pairs(self) -> int:
        return self.predicted.size

    @property
    def groups(self) -> int:
        return len(self.group.names)

    @property
    def simulated_groups(self) -> int:
        return int(self.simulated_group.max(initial=-1)) + 1

    def first_rows(self) -> Ints:
        """The first pair of each group, shape (groups,)."""
        return np.unique(self.group.code, return_index=True)[1].astype(np.int64)

    def label_of_group(self, labels: Labels) -> Ints:
        """The label (task, category) of each group, shape (groups,): that of its first pair."""
        return labels.code[self.first_rows()]

    def take(self, rows: Ints) -> PairLog:
        """The log of these pairs only, in their order; simulated trajectories stay."""

        def cut(labels: Labels | None) -> Labels | None:
            return None if labels is None else Labels(labels.names, labels.code[rows])

        kept = in_order(self.group.code[rows])
        names = [self.group.names[int(name)] for name in kept.names]
        return replace(
            self,
            predicted=self.predicted[rows],
            real=self.real[rows],
            group=Labels(names, kept.code),
            step=self.step[rows],
            task=cut(self.task),
            category=cut(self.category),
            status_predicted=cut(self.status_predicted),
            status_real=cut(self.status_real),
            trajectory=None if self.trajectory is None else [self.trajectory[int(row)] for row in rows],
            seconds=None if self.seconds is None else self.seconds[rows],
        )

    def newest(self, pairs: int) -> PairLog:
        """The log's last `pairs` pairs."""
        return self if pairs >= self.pairs else self.take(np.arange(self.pairs - pairs, self.pairs))

    def steps(self) -> Iterator[tuple[int, list[Ints]]]:
        """Each step's number and the rows of its groups, in order of first appearance."""
        edges = np.flatnonzero(np.diff(self.step)) + 1
        for rows in np.split(np.arange(self.pairs), edges):
            if not rows.size:
                return
            code = in_order(self.group.code[rows]).code
            order = np.argsort(code, kind="stable")
            yield int(self.step[rows[0]]), np.split(rows[order], np.flatnonzero(np.diff(code[order])) + 1)


def make_log(
    predicted: npt.ArrayLike,
    real: npt.ArrayLike,
    *,
    groups: npt.ArrayLike | None = None,
    steps: npt.ArrayLike | None = None,
    tasks: npt.ArrayLike | None = None,
    categories: npt.ArrayLike | None = None,
    statuses_predicted: npt.ArrayLike | None = None,
    statuses_real: npt.ArrayLike | None = None,
    seconds: npt.ArrayLike | None = None,
) -> PairLog:
    """A log from columns of equal length N, in time order or with `steps` to sort by.

    Raises
    ------
    ValueError : a score is not finite and in [0, 1], or lengths differ.
    """
    from wmrl_cli.maths.calibration import check_pairs

    x, y = check_pairs(predicted, real)
    order = np.arange(x.size) if steps is None else np.argsort(np.asarray(steps), kind="stable")

    def column(values: npt.ArrayLike | None) -> Labels | None:
        if values is None:
            return None
        if np.shape(values) != x.shape:
            raise ValueError(f"{x.size} pairs need as many labels: got {np.shape(values)}")
        return in_order(np.asarray(values)[order])

    group = column(groups) or in_order(np.arange(x.size))
    step = first_step(group.code) if steps is None else np.asarray(steps, dtype=np.int64)[order]
    return PairLog(
        predicted=x[order],
        real=y[order],
        group=group,
        step=step,
        has_groups=groups is not None,
        task=column(tasks),
        category=column(categories),
        status_predicted=column(statuses_predicted),
        status_real=column(statuses_real),
        seconds=None if seconds is None else np.asarray(seconds, dtype=float)[order],
    )


def first_step(group: Ints) -> Ints:
    """Steps for a log without any: the group's number, made non-decreasing where groups interleave."""
    return np.maximum.accumulate(group) if group.size else group
