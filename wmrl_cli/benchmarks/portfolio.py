"""Reference solutions: a fixed portfolio of estimators that play the other entrants of a leaderboard.

Each is fitted on a task's public training data exactly as an agent's script would be, from dummies and
one-column models to boosted trees; the scores on the private answers make the board.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn import (
    compose,
    dummy,
    ensemble,
    feature_extraction,
    impute,
    linear_model,
    naive_bayes,
    neighbors,
    pipeline,
    preprocessing,
    tree,
)
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

from wmrl_cli.benchmarks.metrics import METRICS, NUMBER, PROBABILITY
from wmrl_cli.seeds import row_seed
from wmrl_cli.task import Task

Features = Any  # a matrix, dense or sparse


@dataclass(frozen=True)
class Data:
    """What a solution sees: a task's public files, and nothing of the answers."""

    train: pd.DataFrame  # features only
    test: pd.DataFrame
    target: npt.NDArray[Any]
    train_images: npt.NDArray[Any] | None
    test_images: npt.NDArray[Any] | None


@dataclass(frozen=True)
class View:
    """One way of turning a task's files into features, and the share of the training rows that it learns from."""

    name: str
    make: Callable[[Data], tuple[Features, Features]]
    share: float = 1.0
    log_target: bool = False


def reference_scores(task: Task, limit: int | None = None) -> dict[str, float]:
    """Score of every reference solution on the task, in the metric's unit, by the solution's name.

    `limit` takes that many solutions, spread evenly over the portfolio. A view or an estimator that does
    not fit the task's data is an error: the portfolio is chosen so that all of them do.
    """
    metric, data = METRICS[task.metric], _read(task)
    target = task.contract.target_columns[0]
    answers = pd.read_csv(task.private_path / "answers.csv", keep_default_na=False)[target].to_numpy()
    entries = [(view, name, model) for view in _views(task, data) for name, model in _models(task, view)]
    if limit is not None and limit < len(entries):
        entries = [entries[round(i * (len(entries) - 1) / max(1, limit - 1))] for i in range(limit)]
    made: dict[str, tuple[Features, Features]] = {}
    scores = {}
    for view, name, model in entries:
        if view.name not in made:
            made = {view.name: view.make(data)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            guess = _predict(task, view, model, data, *made[view.name])
        scores[f"{view.name}/{name}"] = metric.compute(answers, guess)
    return scores


def _read(task: Task) -> Data:
    contract = task.contract
    train, test = (pd.read_csv(task.public_path / f"{name}.csv") for name in ("train", "test"))
    target = pd.read_csv(task.public_path / "train.csv", keep_default_na=False)[contract.target_columns[0]].to_numpy()
    images = [task.public_path / f"{name}_images.npy" for name in ("train", "test")]
    arrays = [np.load(path) if path.exists() else None for path in images]
    features = test.columns.drop(contract.id_column)
    return Data(train[features], test[features], target, *arrays)


def _predict(
    task: Task, view: View, model: BaseEstimator, data: Data, train: Features, test: Features
) -> npt.NDArray[Any]:
    """Fit on the view's share of the rows, then predict labels, numbers or the probability of class 1."""
    chosen = np.arange(len(data.target))
    if view.share < 1.0:
        drawn = np.random.RandomState(row_seed(0, task.task_id, view.name) % 2**32).permutation(len(chosen))
        chosen = drawn[: max(40, round(view.share * len(chosen)))]
    target = data.target[chosen]
    fitted = clone(model).fit(train[chosen], np.log1p(np.maximum(target, 0)) if view.log_target else target)
    prediction = METRICS[task.metric].prediction
    if prediction == PROBABILITY:
        return np.asarray(fitted.predict_proba(test)[:, list(fitted.classes_).index(1)])
    guess = np.asarray(fitted.predict(test))
    return np.expm1(guess) if view.log_target else guess


def _views(task: Task, data: Data) -> list[View]:
    if data.train_images is not None:
        return _image_views()
    if task.category == "text":
        return _text_views(data)
    columns = list(data.train.columns)
    half = max(1, len(columns) // 2)
    numbers = [name for name in columns if pd.api.types.is_numeric_dtype(data.train[name])]
    views = [
        View("all", lambda d: _table(d, columns)),
        View("ordinal", lambda d: _table(d, columns, ordinal=True)),
        View("first-half", lambda d: _table(d, columns[:half])),
        View("second-half", lambda d: _table(d, columns[half:], ordinal=True)),
        View("quarter-of-rows", lambda d: _table(d, columns), share=0.25),
    ]
    if 2 <= len(numbers) < len(columns):
        views.append(View("numbers", lambda d: _table(d, numbers)))
    if METRICS[task.metric].prediction == NUMBER and (data.target >= 0).all():
        views.append(View("all-log", lambda d: _table(d, columns), log_target=True))
    return views


def _table(data: Data, columns: list[str], *, ordinal: bool = False) -> tuple[Features, Features]:
    """Scaled numbers with medians in the gaps and one-hot words, or unscaled numbers and word codes (`ordinal`)."""
    numbers = [name for name in columns if pd.api.types.is_numeric_dtype(data.train[name])]
    words = [name for name in columns if name not in numbers]
    gaps = impute.SimpleImputer(strategy="mean" if ordinal else "median")
    fill = impute.SimpleImputer(strategy="constant", fill_value="none", missing_values=np.nan)
    if ordinal:
        number_steps: Any = gaps
        coder: Any = preprocessing.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    else:
        number_steps = pipeline.make_pipeline(gaps, preprocessing.StandardScaler())
        coder = preprocessing.OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    shape = compose.ColumnTransformer(
        [("numbers", number_steps, numbers), ("words", pipeline.make_pipeline(fill, coder), words)]
    )
    frames = [frame[columns].astype(dict.fromkeys(words, object)) for frame in (data.train, data.test)]
    return np.asarray(shape.fit_transform(frames[0]), float), np.asarray(shape.transform(frames[1]), float)


def _text_views(data: Data) -> list[View]:
    column = data.train.columns[0]

    def vectors(vectorizer: Any) -> Callable[[Data], tuple[Features, Features]]:
        def make(d: Data) -> tuple[Features, Features]:
            train, test = (frame[column].fillna("").astype(str) for frame in (d.train, d.test))
            return vectorizer.fit_transform(train).tocsr(), vectorizer.transform(test).tocsr()

        return make

    text = feature_extraction.text
    return [
        View("words", vectors(text.TfidfVectorizer(min_df=2))),
        View(
            "word-pairs",
            vectors(text.TfidfVectorizer(ngram_range=(1, 2), min_df=2, max_features=4000, sublinear_tf=True)),
        ),
        View("characters", vectors(text.TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 4), max_features=3000))),
        View("counts", vectors(text.CountVectorizer(binary=True, max_features=500))),
        View("few-words", vectors(text.TfidfVectorizer(max_features=60))),
        View("third-of-rows", vectors(text.TfidfVectorizer(min_df=2)), share=0.33),
        View("tenth-of-rows", vectors(text.TfidfVectorizer()), share=0.1),
    ]


def _image_views() -> list[View]:
    def pixels(change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Callable[[Data], tuple[Features, Features]]:
        def make(d: Data) -> tuple[Features, Features]:
            assert d.train_images is not None and d.test_images is not None
            top = float(d.train_images.max())
            pair = (change(images / top) for images in (d.train_images, d.test_images))
            train, test = (images.reshape(len(images), -1) for images in pair)
            return train, test

        return make

    def profile(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.concatenate([images.mean(axis=1), images.mean(axis=2)], axis=1)

    return [
        View("pixels", pixels(lambda images: images)),
        View("every-second-pixel", pixels(lambda images: images[:, ::2, ::2])),
        View("row-and-column-means", pixels(profile)),
        View("upper-half", pixels(lambda images: images[:, : images.shape[1] // 2])),
        View("third-of-rows", pixels(lambda images: (images > 0.5).astype(float)), share=0.33),
        View("tenth-of-rows", pixels(lambda images: images), share=0.1),
    ]


def _models(task: Task, view: View) -> Iterator[tuple[str, BaseEstimator]]:
    """Names and unfitted estimators; the same list for every view of a task, dummies once."""
    number = METRICS[task.metric].prediction == NUMBER
    first = view.name in ("all", "words", "pixels")
    if task.category == "text":
        return _text_models(first)
    return _regressors(first) if number else _classifiers(first)


def _classifiers(with_dummies: bool) -> Iterator[tuple[str, BaseEstimator]]:
    if with_dummies:
        yield "dummy-prior", dummy.DummyClassifier(strategy="prior")
        yield "dummy-stratified", dummy.DummyClassifier(strategy="stratified", random_state=0)
        yield "dummy-uniform", dummy.DummyClassifier(strategy="uniform", random_state=0)
    for c in (0.003, 0.03, 0.3, 3.0):
        yield f"logistic-{c}", linear_model.LogisticRegression(C=c, max_iter=300)
    yield "naive-bayes", naive_bayes.GaussianNB()
    yield "bernoulli-bayes", naive_bayes.BernoulliNB()
    for k in (1, 5, 15, 40):
        yield f"neighbours-{k}", neighbors.KNeighborsClassifier(k)
    for depth in (1, 3, 6, None):
        yield f"tree-{depth}", tree.DecisionTreeClassifier(max_depth=depth, random_state=0)
    for count, depth in ((10, 3), (30, None), (60, 8)):
        yield f"forest-{count}-{depth}", ensemble.RandomForestClassifier(count, max_depth=depth, random_state=0)
    yield "extra-trees", ensemble.ExtraTreesClassifier(40, min_samples_leaf=2, random_state=0)
    yield "ada-boost", ensemble.AdaBoostClassifier(n_estimators=25, random_state=0)
    for rounds, rate in ((15, 0.1), (25, 0.3)):
        yield (
            f"boosting-{rounds}-{rate}",
            ensemble.HistGradientBoostingClassifier(
                max_iter=rounds, learning_rate=rate, max_leaf_nodes=15, early_stopping=False, random_state=0
            ),
        )


def _regressors(with_dummies: bool) -> Iterator[tuple[str, BaseEstimator]]:
    if with_dummies:
        yield "dummy-mean", dummy.DummyRegressor()
        yield "dummy-median", dummy.DummyRegressor(strategy="median")
        yield "dummy-low", dummy.DummyRegressor(strategy="quantile", quantile=0.25)
    for alpha in (0.1, 30.0, 1000.0):
        yield f"ridge-{alpha}", linear_model.Ridge(alpha=alpha)
    yield "lasso", linear_model.Lasso(alpha=0.5, max_iter=2000)
    yield "huber", linear_model.HuberRegressor(max_iter=300)
    for k in (1, 5, 15, 40):
        yield f"neighbours-{k}", neighbors.KNeighborsRegressor(k)
    for depth in (1, 3, 6, None):
        yield f"tree-{depth}", tree.DecisionTreeRegressor(max_depth=depth, random_state=0)
    for count, depth in ((10, 3), (30, None), (60, 8)):
        yield (
            f"forest-{count}-{depth}",
            ensemble.RandomForestRegressor(count, max_depth=depth, max_features=0.5, random_state=0),
        )
    yield "extra-trees", ensemble.ExtraTreesRegressor(40, min_samples_leaf=2, random_state=0)
    yield "ada-boost", ensemble.AdaBoostRegressor(n_estimators=25, random_state=0)
    for rounds, rate in ((15, 0.1), (60, 0.1), (25, 0.3)):
        yield (
            f"boosting-{rounds}-{rate}",
            ensemble.HistGradientBoostingRegressor(
                max_iter=rounds, learning_rate=rate, max_leaf_nodes=15, early_stopping=False, random_state=0
            ),
        )


def _text_models(with_dummies: bool) -> Iterator[tuple[str, BaseEstimator]]:
    if with_dummies:
        yield "dummy-prior", dummy.DummyClassifier(strategy="prior")
        yield "dummy-stratified", dummy.DummyClassifier(strategy="stratified", random_state=0)
    for c in (0.03, 0.3, 3.0, 30.0):
        yield f"logistic-{c}", linear_model.LogisticRegression(C=c, max_iter=200)
    for alpha in (0.01, 0.3, 2.0):
        yield f"multinomial-bayes-{alpha}", naive_bayes.MultinomialNB(alpha=alpha)
    yield "complement-bayes", naive_bayes.ComplementNB()
    yield "bernoulli-bayes", naive_bayes.BernoulliNB(alpha=0.3)
    for k in (3, 15):
        yield f"neighbours-{k}", neighbors.KNeighborsClassifier(k)
    for depth in (2, 12):
        yield f"tree-{depth}", tree.DecisionTreeClassifier(max_depth=depth, random_state=0)
    yield "forest", ensemble.RandomForestClassifier(30, min_samples_leaf=2, random_state=0)
    yield "linear-descent", linear_model.SGDClassifier(loss="log_loss", alpha=1e-4, max_iter=20, random_state=0)
