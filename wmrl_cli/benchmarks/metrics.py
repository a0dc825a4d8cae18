"""The metrics of tasks: what a target column holds, which way is better, and scikit-learn's function for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn import metrics as sk

LABEL, PROBABILITY, NUMBER = "label", "probability", "number"

Compute = Callable[[npt.NDArray[Any], npt.NDArray[Any]], float]


@dataclass(frozen=True)
class Metric:
    """One metric. `compute(answers, predictions)` takes two 1-d arrays in the same row order.

    `prediction` says what the target column of a submission holds: `label` (a class, compared as text),
    `probability` (of class 1, in [0, 1]; answers are 0 or 1) or `number`. The direction is a fact about
    the metric; nothing else may decide it.
    """

    name: str
    higher_is_better: bool
    prediction: str
    compute: Compute
    words: str  # how a task description names it


def _rmse(truth: npt.NDArray[Any], guess: npt.NDArray[Any]) -> float:
    return float(np.sqrt(sk.mean_squared_error(truth, guess)))


def _rmsle(truth: npt.NDArray[Any], guess: npt.NDArray[Any]) -> float:
    return float(np.sqrt(sk.mean_squared_log_error(truth, np.maximum(guess, 0.0))))


def _macro_f1(truth: npt.NDArray[Any], guess: npt.NDArray[Any]) -> float:
    return float(sk.f1_score(truth, guess, average="macro", zero_division=0.0))


def _log_loss(truth: npt.NDArray[Any], guess: npt.NDArray[Any]) -> float:
    return float(sk.log_loss(truth, np.clip(guess, 1e-15, 1 - 1e-15), labels=[0, 1]))


def _balanced_accuracy(truth: npt.NDArray[Any], guess: npt.NDArray[Any]) -> float:
    return float(np.mean([np.mean(guess[truth == label] == label) for label in np.unique(truth)]))


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", True, LABEL, lambda t, g: float(sk.accuracy_score(t, g)), "accuracy"),
        Metric("balanced_accuracy", True, LABEL, _balanced_accuracy, "balanced accuracy (mean recall of the classes)"),
        Metric("macro_f1", True, LABEL, _macro_f1, "macro-averaged F1"),
        Metric("roc_auc", True, PROBABILITY, lambda t, g: float(sk.roc_auc_score(t, g)), "area under the ROC curve"),
        Metric(
            "average_precision",
            True,
            PROBABILITY,
            lambda t, g: float(sk.average_precision_score(t, g)),
            "average precision",
        ),
        Metric("log_loss", False, PROBABILITY, _log_loss, "log loss"),
        Metric("brier", False, PROBABILITY, lambda t, g: float(np.mean((t - g) ** 2)), "Brier score"),
        Metric("rmse", False, NUMBER, _rmse, "root mean squared error"),
        Metric("rmsle", False, NUMBER, _rmsle, "root mean squared logarithmic error (predictions below 0 count as 0)"),
        Metric("mae", False, NUMBER, lambda t, g: float(sk.mean_absolute_error(t, g)), "mean absolute error"),
        Metric("r2", True, NUMBER, lambda t, g: float(sk.r2_score(t, g)), "coefficient of determination R2"),
    )
}
