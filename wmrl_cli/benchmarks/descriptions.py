"""The text of an offline task: goal, files, columns, metric and what to submit."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import pandas as pd

from wmrl_cli.benchmarks.metrics import METRICS
from wmrl_cli.benchmarks.offline_specs import OfflineSpec


def describe(spec: OfflineSpec, train: pd.DataFrame, test: pd.DataFrame, images: npt.NDArray[Any] | None) -> str:
    """The task's `description.md`, from its spec and the rows as they were cut."""
    metric, target, name = METRICS[spec.metric], spec.target_out, spec.id_column
    goal = {
        "label": f"Predict the class `{target}` of each row of `input/test.csv`.",
        "probability": f"Predict, for each row of `input/test.csv`, the chance of `{target}` = 1 ({spec.positive}).",
        "number": f"Predict the number `{target}` of each row of `input/test.csv`.",
    }[metric.prediction]
    columns = [f"- `{column}`: {column_words(train[column])}\n" for column in train if column not in (name, target)]
    direction = "higher is better" if metric.higher_is_better else "lower is better"
    return f"""# {spec.title}

{spec.about}

## Goal
{goal}

## Files
- `input/train.csv`: {len(train)} rows, with `{target}`
- `input/test.csv`: {len(test)} rows, without it
{_image_words(images)}- `input/sample_submission.csv`: the form of a submission

## Columns
- `{name}`: id of the row
{"".join(columns)}- `{target}`: to be predicted; {column_words(train[target])}

## Evaluation
{metric.words[0].upper()}{metric.words[1:]}: {direction}.

## Submission
Write `submission.csv` with the columns `{name}` and `{target}`, and one row for each of the {len(test)} ids of
`input/test.csv`.

## Source
`{spec.source}`. {spec.licence}
"""


def _image_words(images: npt.NDArray[Any] | None) -> str:
    if images is None:
        return ""
    height, width = images.shape[1:]
    return (
        f"- `input/train_images.npy`, `input/test_images.npy`: uint8 grey images of {height} x {width} pixels, "
        f"0 to {int(images.max())}, in the order of the rows of the CSV files\n"
    )


def column_words(values: pd.Series) -> str:
    """Type, range or values, and the share of empty cells of one column."""
    present = values.dropna()
    distinct = sorted(present.unique())
    if pd.api.types.is_numeric_dtype(values):
        few = " or ".join(f"{value:g}" for value in distinct)
        words = f"number, {few if len(distinct) <= 2 else f'{distinct[0]:g} to {distinct[-1]:g}'}"
    elif len(distinct) <= 12:
        words = "text, one of " + ", ".join(f"`{value}`" for value in distinct)
    else:
        words = f"text, {len(distinct)} different values"
    share = values.isna().mean()
    return words + (f", {share:.0%} missing" if share else "")
