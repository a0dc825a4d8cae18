"""Random variants of the training tasks' data sets: other columns, names, rows, metrics, ids and empty cells.

No held-out data set is ever touched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

import pandas as pd

from scripts.tiny.imagined import column_name, id_name
from wmrl_cli.benchmarks.metrics import LABEL, METRICS, NUMBER, PROBABILITY
from wmrl_cli.benchmarks.offline import build_task
from wmrl_cli.benchmarks.offline_specs import OfflineSpec, load_specs
from wmrl_cli.benchmarks.portfolio import reference_scores
from wmrl_cli.benchmarks.sources import Source, load_source
from wmrl_cli.errors import ConfigError
from wmrl_cli.task import Leaderboard, Task

BOARD_SIZE = 16  # reference solutions of a variant's leaderboard
_METRICS = {
    LABEL: ("accuracy", "macro_f1", "balanced_accuracy"),
    PROBABILITY: ("roc_auc", "average_precision", "log_loss", "brier"),
    NUMBER: ("rmse", "mae", "r2"),
}


def build_variants(count: int, root: Path, seed: int) -> list[Task]:
    """`count` tasks with their folders under `root`, each with a small leaderboard of its own."""
    specs = [spec for spec in load_specs().values() if spec.split == "train"]
    sources = {spec.task_id: load_source(spec.source) for spec in specs}
    random, tasks = Random(seed), list[Task]()
    while len(tasks) < count:
        spec = random.choice(specs)
        variant = vary(spec, sources[spec.task_id], random, f"{spec.task_id}-v{len(tasks)}")
        try:
            tasks.append(_build(variant, sources[spec.task_id], root))
        except (ConfigError, ValueError):  # too few rows of some class, or nothing but gaps: another draw
            continue
        print(f"variant {len(tasks)}/{count} {variant.task_id}", flush=True)
    return tasks


def vary(spec: OfflineSpec, source: Source, random: Random, name: str) -> OfflineSpec:
    """A random variant of the task."""
    columns = spec.columns
    if spec.category == "tabular":
        columns = tuple(random.sample(columns, random.randint(2, len(columns))))
    metrics = [
        m for m in _METRICS[METRICS[spec.metric].prediction] if m != "average_precision" or random.random() < 0.5
    ]
    numeric = [c for c in columns if pd.api.types.is_numeric_dtype(source.frame[c]) and source.frame[c].nunique() > 5]
    gaps = (
        random.sample(columns, random.randint(1, len(columns)))
        if spec.category == "tabular" and random.random() < 0.5
        else []
    )
    names = _names(len(columns) + 2, random)
    return replace(
        spec,
        task_id=name,
        columns=columns,
        rename=_rename(columns, names[2:], random),
        metric=random.choice(metrics),
        target_name=names[0],
        id_column=names[1],
        id_prefix=random.choice(("", "", "", "R", "No")),
        rows=random.choice((200, 300, 400, 600, 900)),
        missing=random.choice((0.04, 0.1, 0.2)) if gaps else 0.0,
        missing_columns=tuple(gaps),
        binned=tuple(random.sample(numeric, random.choice((0, 0, 1, 2)) if len(numeric) > 2 else 0)),
        seed=random.randrange(10**6),
    )


def _names(count: int, random: Random) -> list[str]:
    """Target, id and features, all different."""
    names = [column_name(random), id_name(random), *(column_name(random) for _ in range(count - 2))]
    return names if len(set(names)) == count else _names(count, random)


def _rename(columns: tuple[str, ...], names: list[str], random: Random) -> Mapping[str, str]:
    share = random.choice((0.0, 0.5, 1.0, 1.0))
    return {column: name for column, name in zip(columns, names, strict=True) if random.random() < share}


def _build(spec: OfflineSpec, source: Source, root: Path) -> Task:
    folder = root / spec.task_id
    task = build_task(spec, folder, root=root, scores=(0.0,), source=source)
    scores = tuple(reference_scores(task, limit=BOARD_SIZE).values())
    return replace(task, leaderboards=(Leaderboard(name="reference", scores=scores),))
