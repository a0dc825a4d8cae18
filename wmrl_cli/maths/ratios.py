"""Many ratios of sums over groups, with intervals from one set of bootstrap draws that take whole groups."""

from __future__ import annotations

import numpy as np

from wmrl_cli.maths.calibration import Floats
from wmrl_cli.maths.intervals import MOST_CLUSTERS, Interval, Ints, cluster_bootstrap


class Ratios:
    """Collect ratios (means, shares, roots of mean squares), then get all intervals at once.

    Above `MOST_CLUSTERS` groups, groups are dealt at random into that many heaps, so memory is bounded and
    the interval as good.

    Parameters
    ----------
    group : shape (N,), each row's group in [0, groups).
    groups : how many there are.
    seed : of the heaps and the draws.

    Examples
    --------
    >>> ratios = Ratios(np.array([0, 0, 1, 1]), 2)
    >>> ratios.add_rows("mean", np.array([0., 1., 1., 1.]))
    >>> ratios.intervals(draws=100)["mean"].estimate
    0.75
    """

    def __init__(self, group: Ints, groups: int, *, seed: int = 0) -> None:
        self.seed, self.clusters = seed, min(groups, MOST_CLUSTERS)
        random = np.random.default_rng([seed, 1])
        self._heap = np.arange(groups) if groups <= MOST_CLUSTERS else random.permutation(groups) % MOST_CLUSTERS
        self._row_heap = self._heap[group] if groups else group
        self._names: list[str] = []
        self._sums: list[Floats] = []
        self._roots: list[bool] = []

    def add_rows(self, name: str, values: Floats, chosen: np.ndarray | None = None, *, root: bool = False) -> None:
        """The mean of `values`, shape (N,), over the rows that `chosen` marks; `root` takes its square root."""
        kept = np.isfinite(values) if chosen is None else chosen & np.isfinite(values)
        self._add(name, self._row_heap[kept], values[kept], np.ones(int(kept.sum())), root)

    def add_groups(self, name: str, top: Floats, bottom: Floats, *, root: bool = False) -> None:
        """The sum of `top` over the sum of `bottom`, both shape (groups,); groups with a NaN are left out."""
        kept = np.isfinite(top) & np.isfinite(bottom)
        self._add(name, self._heap[kept], top[kept], bottom[kept], root)

    def _add(self, name: str, heap: Ints, top: Floats, bottom: Floats, root: bool) -> None:
        self._names.append(name)
        self._roots.append(root)
        self._sums += [np.bincount(heap, part, self.clusters).astype(float) for part in (top, bottom)]

    def intervals(self, *, draws: int = 1000, level: float = 0.95) -> dict[str, Interval]:
        """Each ratio by name; NaN where its denominator is 0. `rows` is the denominator, `clusters` who adds to it."""
        if not self._names:
            return {}
        sums = np.stack(self._sums, axis=1)
        roots = np.array(self._roots)

        def ratios(total: Floats) -> Floats:
            with np.errstate(invalid="ignore", divide="ignore"):
                values = total[:, 0::2] / total[:, 1::2]
                return np.where(roots, np.sqrt(np.maximum(values, 0.0)), values)

        found = cluster_bootstrap(sums, ratios, rows=0, level=level, draws=draws, seed=self.seed)
        bottoms = sums[:, 1::2]
        return {
            name: interval._replace(rows=round(float(bottoms[:, i].sum())), clusters=int((bottoms[:, i] != 0).sum()))
            for i, (name, interval) in enumerate(zip(self._names, found, strict=True))
        }
