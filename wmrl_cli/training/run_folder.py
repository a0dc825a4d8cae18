"""A run on disk: its configuration, each step's tables, checkpoints, and how an interrupted run goes on.

    RUN/config.json                     the resolved configuration and its identity
    RUN/steps/00007/*.parquet           trajectories, scores, anchor_pairs and metrics of one step
    RUN/checkpoints/00008/              learner and calibrator, ready for step 8
    RUN/metrics.parquet, anchor_pairs.parquet, calibration.json, model/    the run so far

A step's folder and a checkpoint appear whole, by a rename. A step that has no checkpoint yet is played
again, from the same seeds.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from wmrl_cli import tables
from wmrl_cli.errors import ConfigError
from wmrl_cli.runner import locked
from wmrl_cli.tables import ANCHOR_PAIRS, METRICS, TableKind
from wmrl_cli.task import Task
from wmrl_cli.training.config import TrainConfig

KEPT_CHECKPOINTS = 2


class Saves(Protocol):
    """Anything that writes itself into a folder (the learner)."""

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


class RunFolder:
    """The only place that knows where a run keeps what. Use as a context manager: it holds the folder's lock.

    On the other ranks of a job it reads checkpoints and writes nothing but its part of one (`writes` is false).
    """

    def __init__(self, path: Path, config: TrainConfig, *, writes: bool = True) -> None:
        self.path, self.config, self.writes = path, config, writes
        self._provenance = tables.provenance("train", config=asdict(config), identity=config.identity)
        self._written: dict[str, list[pa.Table]] = {METRICS.name: [], ANCHOR_PAIRS.name: []}

    def __enter__(self) -> RunFolder:
        with ExitStack() as held:
            if self.writes:
                held.enter_context(locked(self.path / "run"))
                self._check_identity()
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def _check_identity(self) -> None:
        file = self.path / "config.json"
        if not file.exists():
            self.write_json("config.json", {"identity": self.config.identity, "config": asdict(self.config)})
            return
        stored = json.loads(file.read_text())
        if stored["identity"] != self.config.identity:
            changed = _differences(stored["config"], json.loads(json.dumps(asdict(self.config))))
            raise ConfigError(
                f"`{self.path}` holds a run of another configuration: {'; '.join(changed) or 'its format is older'}",
                "give the same options to resume it, or choose another folder with -o",
            )

    def check_tasks(self, tasks: Sequence[Task]) -> None:
        """Refuse to go on with other tasks, or with data that changed since the run began."""
        if not self.writes:
            return
        file = self.path / "tasks.json"
        digests = {task.task_id: task.digest for task in tasks}
        if not file.exists():
            self.write_json("tasks.json", digests)
        elif (stored := json.loads(file.read_text())) != digests:
            changed = sorted(name for name in stored.keys() | digests.keys() if stored.get(name) != digests.get(name))
            raise ConfigError(
                f"the tasks of the run in `{self.path}` changed: `{'`, `'.join(changed)}`",
                "give the tasks that it began with, or choose another folder with -o",
            )

    def restore(self, learner: Saves) -> tuple[int, dict[str, Any]]:
        """The step to go on with and the state stored with it; (0, {}) on a fresh run."""
        checkpoints = sorted(self.path.glob("checkpoints/[0-9]*"))
        step, state = 0, {}
        if checkpoints:
            step = int(checkpoints[-1].name)
            learner.load(checkpoints[-1] / "learner")
            state = json.loads((checkpoints[-1] / "state.json").read_text())
        for folder in sorted(self.path.glob("steps/[0-9]*")) if self.writes else ():
            if int(folder.name) >= step:
                shutil.rmtree(folder)
                continue
            for kind in (METRICS, ANCHOR_PAIRS):
                self._written[kind.name].append(tables.read_table(kind, folder / f"{kind.name}.parquet"))
        return step, state

    def commit(self, step: int, rows: Mapping[str, list[dict[str, Any]]]) -> None:
        """Put one step's tables on disk, all or none, and bring the run's own tables up to date."""
        if not self.writes:
            return
        scratch = self._scratch(f"steps/.{step:05d}")
        for name, kind_rows in rows.items():
            kind = tables.KINDS[name]
            table = tables.rows_to_table(kind, kind_rows)
            self._write(kind, table, scratch / f"{name}.parquet")
            if name in self._written:
                self._written[name].append(table)
        os.replace(scratch, self.path / f"steps/{step:05d}")
        for name, written in self._written.items():
            self._write(tables.KINDS[name], pa.concat_tables(written), self.path / f"{name}.parquet")

    def checkpoint(self, next_step: int, learner: Saves, state: Mapping[str, Any]) -> None:
        """Store what step `next_step` needs; the newest two checkpoints are kept. All ranks write their part of it."""
        target = self.path / f"checkpoints/{next_step:05d}"
        scratch = self._scratch(f"checkpoints/.{next_step:05d}")
        learner.save(scratch / "learner")
        if not self.writes:
            return
        (scratch / "state.json").write_text(json.dumps(state))
        if target.exists():  # an interrupted run that is played again to the same step
            shutil.rmtree(target)
        os.replace(scratch, target)
        for old in sorted(self.path.glob("checkpoints/[0-9]*"))[:-KEPT_CHECKPOINTS]:
            shutil.rmtree(old)

    def metrics(self) -> pa.Table:
        """All steps' metrics so far."""
        return pa.concat_tables(self._written[METRICS.name])

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        if not self.writes:
            return
        text = json.dumps(values, indent=2)
        tables.write_atomically(self.path / name, lambda scratch: Path(scratch).write_text(text + "\n"))

    def _write(self, kind: TableKind, table: pa.Table, path: Path) -> None:
        tables.write_table(kind, table, path, provenance=self._provenance)

    def _scratch(self, name: str) -> Path:
        """A fresh folder beside where it will be renamed to; what a killed run left there goes."""
        folder = self.path / name
        if self.writes:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        return folder


def _differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """`key: old -> new` for each setting that differs."""
    found = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += _differences(before, after, f"{prefix}{name}.")
        elif before != after:
            found.append(f"`{prefix}{name}` was {json.dumps(before)}, is {json.dumps(after)}")
    return found
