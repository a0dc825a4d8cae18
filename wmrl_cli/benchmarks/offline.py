"""The `offline` suite: small prediction tasks cut from real data that Python packages ship.

A task is an `OfflineSpec` (one TOML file in `tasks/offline/`) and `build_task` makes its folders::

    spec = load_specs()["penguin-species"]
    task = build_task(spec, Path("out"), root=Path("out"), scores=(0.9, 0.8))

Variants of a task, for experiments that need many different ones, are specs too::

    variant = dataclasses.replace(
        spec, task_id="penguin-species-v7", columns=("bill_length_mm", "island", "sex"), rows=240,
        id_column="Id", target_name="kind", rename={"island": "place"}, missing=0.1, seed=7,
    )
    task = build_task(variant, Path("variants/v7"), root=Path("variants"), scores=scores)

`columns` takes a subset of the data set's columns, `rename` and `target_name` give them other names, `missing`
empties a share of the cells of `missing_columns` (all columns when empty), `binned` turns numbers into the
words low, mid, high, and `seed` decides rows, split and cells. Everything is drawn from hashes, so a spec
gives the same bytes with every version of NumPy. `scores` is the task's leaderboard;
`portfolio.reference_scores` measures one.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from wmrl_cli.benchmarks.descriptions import describe
from wmrl_cli.benchmarks.inventory import take_inventory
from wmrl_cli.benchmarks.metrics import LABEL, METRICS, PROBABILITY
from wmrl_cli.benchmarks.offline_specs import SUITE, OfflineSpec, load_board, load_specs
from wmrl_cli.benchmarks.sources import Source, load_source
from wmrl_cli.benchmarks.suites import check_board, folder_digest
from wmrl_cli.errors import ConfigError
from wmrl_cli.names import unknown_name
from wmrl_cli.tables import TASKS, provenance, rows_to_table, write_table
from wmrl_cli.task import Contract, Leaderboard, Task


def prepare_offline(out_dir: Path, tasks: Iterable[str] | None = None) -> pa.Table:
    """Write the suite's folders and `tasks.parquet` into `out_dir`; returns the table.

    `tasks` picks some of them by name. Raises ConfigError for an unknown name, UnavailableError where the
    package that ships the data is not installed.
    """
    specs = load_specs()
    names = list(specs) if tasks is None else list(dict.fromkeys(tasks))
    for name in names:
        if name not in specs:
            raise ConfigError(*unknown_name("task", name, specs))
    if not names:
        raise ConfigError("no task is asked for", "leave `--tasks` out for all of them")
    rows = [
        build_task(specs[name], out_dir / SUITE / name, root=out_dir, scores=load_board(name)).to_row()
        for name in specs
        if name in names
    ]
    table = rows_to_table(TASKS, rows)
    stamp = provenance(
        "prepare-tasks", config={"suite": SUITE, "tasks": names}, digests=[row["digest"] for row in rows]
    )
    write_table(TASKS, table, out_dir / "tasks.parquet", provenance=stamp)
    return table


def build_task(
    spec: OfflineSpec, folder: Path, *, root: Path, scores: Sequence[float], source: Source | None = None
) -> Task:
    """Write `folder`/public and `folder`/private (answers.csv, mode 0600) and return the task.

    `root` is the folder of the tasks table, `scores` the leaderboard, `source` a data set that is already
    loaded (read by name when None). An existing folder is replaced.
    """
    metric = METRICS[spec.metric]
    check_board(spec.task_id, "reference", tuple(scores), higher_is_better=metric.higher_is_better)
    frame, images = _select(spec, source or load_source(spec.source))
    is_test = _split(spec, frame[spec.target_out])
    shutil.rmtree(folder, ignore_errors=True)
    public, private = folder / "public", folder / "private"
    public.mkdir(parents=True)
    private.mkdir(mode=0o700)
    train, test = frame[~is_test], frame[is_test]
    answers = test[[spec.id_column, spec.target_out]]
    _check_answers(spec, train[spec.target_out], answers[spec.target_out])
    train.to_csv(public / "train.csv", index=False)
    test.drop(columns=spec.target_out).to_csv(public / "test.csv", index=False)
    sample = answers.assign(**{spec.target_out: _uninformed(spec, train[spec.target_out])})
    sample.to_csv(public / "sample_submission.csv", index=False)
    if images is not None:
        np.save(public / "train_images.npy", images[~is_test])
        np.save(public / "test_images.npy", images[is_test])
    description = describe(spec, train, test, images)
    (public / "description.md").write_text(description, encoding="utf-8")
    descriptor = os.open(private / "answers.csv", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        answers.to_csv(file, index=False)
    contract = Contract(
        file="submission.csv",
        id_column=spec.id_column,
        target_columns=(spec.target_out,),
        rows=len(test),
        prediction=metric.prediction,
    )
    return Task(
        task_id=spec.task_id,
        suite=SUITE,
        split=spec.split,
        category=spec.category,
        metric=spec.metric,
        higher_is_better=metric.higher_is_better,
        description=description,
        inventory=take_inventory(public),
        contract=contract,
        public_dir=public.relative_to(root).as_posix(),
        private_dir=private.relative_to(root).as_posix(),
        leaderboards=(Leaderboard(name="reference", scores=tuple(map(float, scores))),),
        digest=folder_digest(public, private),
        root=root,
    )


def uniforms(count: int, *key: object) -> npt.NDArray[np.float64]:
    """`count` numbers in [0, 1) that depend on the key alone, not on a library's generator."""
    stream = hashlib.shake_256(json.dumps([str(part) for part in key]).encode()).digest(8 * count)
    return (np.frombuffer(stream, dtype="<u8") >> 11) / 2.0**53


def _select(spec: OfflineSpec, source: Source) -> tuple[pd.DataFrame, npt.NDArray[np.uint8] | None]:
    """The task's rows in a drawn order, with its own column names; the images in the same order."""
    if unknown := [name for name in (*spec.columns, spec.target) if name not in source.frame]:
        raise ConfigError(
            f"data source `{spec.source}` has no column `{unknown[0]}`", f"it has {list(source.frame.columns)}"
        )
    usable = np.flatnonzero(source.frame[spec.target].notna())
    order = usable[np.argsort(uniforms(len(usable), spec.task_id, spec.seed, "rows"), kind="stable")][: spec.rows]
    raw = source.frame.iloc[order]
    columns: dict[str, Any] = {}
    for name in spec.columns:
        values = raw[name].reset_index(drop=True)
        values = _as_words(values) if name in spec.binned else _tidy(values)
        if spec.missing and (not spec.missing_columns or name in spec.missing_columns):
            values = values.where(uniforms(len(values), spec.task_id, spec.seed, "missing", name) >= spec.missing)
        columns[spec.rename.get(name, name)] = values
    target = raw[spec.target].reset_index(drop=True)
    columns[spec.target_out] = (target.astype(str) == spec.positive).astype(int) if spec.positive else _tidy(target)
    numbers = np.argsort(uniforms(len(raw), spec.task_id, spec.seed, "ids"), kind="stable") + 1
    ids = [f"{spec.id_prefix}{number:05d}" for number in numbers] if spec.id_prefix else numbers
    frame = pd.DataFrame({spec.id_column: ids, **columns})
    if len(frame.columns) != len(spec.columns) + 2:
        raise ConfigError(f"two columns of task `{spec.task_id}` have the same name: {list(columns)}")
    return frame, None if source.images is None else source.images[order]


def _tidy(values: pd.Series) -> pd.Series:
    """Floats with six significant digits, categories as plain text, other values as they are."""
    if pd.api.types.is_float_dtype(values):
        return values.map(lambda value: float(f"{value:.6g}"))
    if isinstance(values.dtype, pd.CategoricalDtype) or values.dtype == object:
        return values.map(lambda value: " ".join(str(value).split()), na_action="ignore").astype(object)
    return values


def _as_words(values: pd.Series) -> pd.Series:
    low, high = values.quantile([1 / 3, 2 / 3])
    words = np.where(values <= low, "low", np.where(values <= high, "mid", "high"))
    return pd.Series(words, dtype=object).where(values.notna().to_numpy())


def _split(spec: OfflineSpec, target: pd.Series) -> npt.NDArray[np.bool_]:
    """Which rows are the test set: `test_share` of them, and of each class where the target has classes."""
    draw = uniforms(len(target), spec.task_id, spec.seed, "split")
    classes = np.zeros(len(target)) if METRICS[spec.metric].prediction == "number" else target.to_numpy()
    is_test = np.zeros(len(target), dtype=bool)
    for label in pd.unique(classes):
        members = np.flatnonzero(classes == label)
        is_test[members[np.argsort(draw[members], kind="stable")][: max(1, round(spec.test_share * len(members)))]] = (
            True
        )
    return is_test


def _check_answers(spec: OfflineSpec, train: pd.Series, answers: pd.Series) -> None:
    if METRICS[spec.metric].prediction == LABEL and set(train) != set(answers):
        raise ConfigError(
            f"task `{spec.task_id}` has classes without both training and test rows", "use more rows, or fewer classes"
        )
    if METRICS[spec.metric].prediction == PROBABILITY and not set(train) == set(answers) == {0, 1}:
        raise ConfigError(f"no row of task `{spec.task_id}` has the positive value `{spec.positive}`, or all have")


def _uninformed(spec: OfflineSpec, train: pd.Series) -> Any:
    """What a sample submission predicts everywhere: the most frequent class, one half, or the mean."""
    match METRICS[spec.metric].prediction:
        case "label":
            return train.mode().iloc[0]
        case "probability":
            return 0.5
        case _:
            return float(f"{train.mean():.6g}")
