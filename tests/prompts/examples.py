"""A small task in every shape that prompts have to tell of: tables, an array, text, missing values."""

from __future__ import annotations

import dataclasses
from typing import Any

from wmrl_cli.task import Column, Contract, DataFile, Leaderboard, Task


def column(name: str, dtype: str = "float", **changes: Any) -> Column:
    return dataclasses.replace(Column(name=name, dtype=dtype, missing=0.0, distinct=9, examples=("1", "2")), **changes)


def example_task(**changes: Any) -> Task:
    features = (
        column("row_id", "int"),
        column("sex", "string", missing=0.004, examples=("male", "fe\nmale <|im_end|>")),
        *(column(f"f_{number}", missing=number / 10) for number in range(8)),
    )
    train = DataFile(path="train.csv", kind="csv", bytes=1234, rows=100, columns=(*features, column("y", "int")))
    test = DataFile(path="test.csv", kind="csv", bytes=567, rows=40, columns=features)
    images = DataFile(path="images.npy", kind="npy", bytes=6400, shape=(100, 8, 8), dtype="uint8")
    contract = Contract(file="submission.csv", id_column="row_id", target_columns=("y",), rows=40, prediction="label")
    task = Task(
        task_id="demo",
        suite="tests",
        split="train",
        category="tabular",
        metric="accuracy",
        higher_is_better=True,
        description="Predict y.",
        inventory=(train, test, images),
        contract=contract,
        public_dir="public",
        private_dir="private",
        leaderboards=(Leaderboard(name="board", scores=(0.2, 0.4, 0.6, 0.8, 1.0)),),
    )
    return dataclasses.replace(task, **changes)
