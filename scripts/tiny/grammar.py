"""A grammar of scikit-learn scripts, good and bad, that the embedded agent learns to write.

It knows no outcome: whether a script runs, and how well, is measured by running it. Each choice is written
once (a class is imported by its module, a name stands where it is used), because a model of a million
parameters keeps far-apart choices consistent badly. The mistakes are those of beginners, and many are not
marked as mistakes anywhere: a missing imputer is one only for some models on some data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from wmrl_cli.benchmarks.metrics import NUMBER, PROBABILITY
from wmrl_cli.prompts.compact import NAMES_SHOWN, Facts


@dataclass(frozen=True)
class Setting:
    """One hyper-parameter: sane values, values that scikit-learn refuses, and one that takes for ever."""

    name: str
    good: tuple[str, ...]
    bad: tuple[str, ...] = ()
    slow: str | None = None


_TREES = Setting("n_estimators", ("5", "20", "50", "100"), ("0", "-5"), "30000")
_DEPTH = Setting("max_depth", ("1", "2", "4", "8", "16"), ("0", "-1"))
_LEAF = Setting("min_samples_leaf", ("1", "5", "20"), ("0",))
_NEAR = Setting("n_neighbors", ("1", "3", "5", "15", "40"), ("0", "-3"))
_C = Setting("C", ("0.001", "0.1", "1.0", "10.0"), ("-1.0", "0.0"))
_ALPHA = Setting("alpha", ("0.01", "0.1", "1.0", "10.0", "100.0"), ("-1.0",))
_RATE = Setting("learning_rate", ("0.02", "0.1", "0.3"), ("-0.1",))
_ROUNDS = Setting("max_iter", ("20", "50", "100"), ("0", "-1"))

CLASSIFIERS: dict[str, tuple[Setting, ...]] = {
    "linear_model.LogisticRegression": (_C, Setting("max_iter", ("200", "500"), ("-1",))),
    "ensemble.RandomForestClassifier": (_TREES, _DEPTH),
    "ensemble.ExtraTreesClassifier": (_TREES, _LEAF),
    "ensemble.GradientBoostingClassifier": (Setting("n_estimators", ("5", "20", "50"), ("0",), "30000"), _RATE),
    "ensemble.HistGradientBoostingClassifier": (_ROUNDS, _RATE),
    "neighbors.KNeighborsClassifier": (_NEAR,),
    "tree.DecisionTreeClassifier": (_DEPTH, _LEAF),
    "naive_bayes.GaussianNB": (),
    "svm.SVC": (_C,),
    "linear_model.RidgeClassifier": (_ALPHA,),
    "dummy.DummyClassifier": (),
}
REGRESSORS: dict[str, tuple[Setting, ...]] = {
    "linear_model.Ridge": (_ALPHA,),
    "linear_model.Lasso": (_ALPHA,),
    "ensemble.RandomForestRegressor": (_TREES, _DEPTH),
    "ensemble.ExtraTreesRegressor": (_TREES, _LEAF),
    "ensemble.GradientBoostingRegressor": (Setting("n_estimators", ("5", "20", "50"), ("0",), "30000"), _RATE),
    "ensemble.HistGradientBoostingRegressor": (_ROUNDS, _RATE),
    "neighbors.KNeighborsRegressor": (_NEAR,),
    "tree.DecisionTreeRegressor": (_DEPTH, _LEAF),
    "svm.SVR": (_C,),
    "dummy.DummyRegressor": (),
}
_CLASSIFIER_WEIGHTS = (16, 14, 10, 9, 9, 10, 11, 5, 4, 3, 9)
_REGRESSOR_WEIGHTS = (14, 8, 15, 10, 11, 10, 11, 12, 3, 6)
_SLOW_MODELS = ("ensemble.RandomForest", "ensemble.ExtraTrees", "ensemble.GradientBoosting")
_MODULES = ("linear_model", "ensemble", "neighbors", "tree", "naive_bayes", "svm")

# Weight of each slip; a script has none, one or, seldom, two. Many fail without any, and some run in spite of one.
SLIPS: dict[str, float] = {
    "forgotten_import": 6, "wrong_import": 5, "unknown_package": 2, "wrong_module": 6, "unknown_argument": 4,
    "bad_value": 5, "slow": 1.5, "misspelt_method": 4, "wrong_name_read": 6, "wrong_name_written": 6,
    "index_written": 4, "wrong_file_read": 4, "not_saved": 3, "saved_elsewhere": 3, "undefined_name": 3,
    "wrong_output": 6, "wrong_kind": 4, "wrong_rows": 3, "no_encoder": 5, "no_imputer": 6, "wrong_column": 6,
    "unclosed": 3,
}  # fmt: skip
_SHARE_WITHOUT_SLIP, _SHARE_WITH_TWO = 0.52, 0.05


@dataclass
class _Draft:
    """A script in the making."""

    facts: Facts
    random: Random
    slips: frozenset[str]
    imports: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)

    def happens(self, share: float) -> bool:
        return self.random.random() < share


def write_script(facts: Facts, random: Random) -> str:
    """One script for the task, drawn from the grammar."""
    draft = _Draft(facts, random, _draw_slips(random))
    frame = "train" if "wrong_rows" in draft.slips and facts.category == "tabular" else "test"
    {"tabular": _tabular, "text": _text, "image": _image}[facts.category](draft, _model(draft))
    _predict_and_save(draft, {"tabular": frame, "text": f"test[{facts.text!r}]", "image": "Z"}[facts.category])
    _slip_in_imports(draft)
    lines = draft.imports + draft.body
    if "unclosed" in draft.slips:
        spots = [i for i, line in enumerate(lines) if line.endswith((")", "]"))]
        lines[spot] = lines[(spot := random.choice(spots))][:-1]
    return "\n".join(lines) + "\n"


def _draw_slips(random: Random) -> frozenset[str]:
    draw = random.random()
    count = 0 if draw < _SHARE_WITHOUT_SLIP else 2 if draw > 1 - _SHARE_WITH_TWO else 1
    return frozenset(random.choices(list(SLIPS), list(SLIPS.values()), k=count))


def _model(draft: _Draft) -> str:
    """The estimator with its settings, as it stands in the pipeline."""
    regression = (draft.facts.prediction == NUMBER) != ("wrong_kind" in draft.slips)
    family, weights = (REGRESSORS, _REGRESSOR_WEIGHTS) if regression else (CLASSIFIERS, _CLASSIFIER_WEIGHTS)
    names = list(family)
    name = draft.random.choices(names, weights)[0]
    if "slow" in draft.slips:
        name = draft.random.choice([n for n in names if n.startswith(_SLOW_MODELS)])
    if "bad_value" in draft.slips:
        name = draft.random.choices(
            [n for n in names if family[n]], [w for n, w in zip(names, weights, strict=True) if family[n]]
        )[0]
    spoilt = draft.random.choice([s.name for s in family[name] if s.bad]) if "bad_value" in draft.slips else None
    arguments = []
    for setting in family[name]:
        if setting.name == spoilt:
            arguments.append(f"{setting.name}={draft.random.choice(setting.bad)}")
        elif "slow" in draft.slips and setting.slow:
            arguments.append(f"{setting.name}={setting.slow}")
        elif draft.happens(0.75):
            arguments.append(f"{setting.name}={draft.random.choice(setting.good)}")
    if "unknown_argument" in draft.slips:
        arguments.append(
            draft.random.choice(("n_trees=100", "depth=4", "k=5", "lr=0.1", "epochs=10", "normalize=True"))
        )
    if "wrong_module" in draft.slips:
        module, _, name = name.partition(".")
        name = f"{draft.random.choice([m for m in _MODULES if m != module])}.{name}"
    return f"{name}({', '.join(arguments)})"


_SKLEARN = "from sklearn import decomposition, dummy, ensemble, linear_model, naive_bayes, neighbors, svm, tree"


def _start(draft: _Draft, *imports: str) -> None:
    draft.imports = ["import pandas as pd", _SKLEARN, *imports, "from sklearn.pipeline import make_pipeline"]
    folder = "input/"
    train = test = folder
    if "wrong_file_read" in draft.slips:
        wrong = draft.random.choice(("", "data/", "../input/"))
        train, test = draft.random.choice(((wrong, wrong), (folder, wrong)))
    identity = draft.facts.id_column
    if "wrong_name_read" in draft.slips and draft.happens(0.5):
        identity = draft.random.choice([n for n in ("id", "Id", "row_id", "ID") if n != identity])
    taken_from = "train" if "wrong_rows" in draft.slips and draft.facts.category != "tabular" else "test"
    draft.body = [
        f"train = pd.read_csv('{train}train.csv')",
        f"test = pd.read_csv('{test}test.csv')",
        f"ids = {taken_from}.pop({identity!r})",
    ]


def _target(draft: _Draft) -> str:
    name = draft.facts.target
    if "wrong_name_read" in draft.slips and f"test.pop({draft.facts.id_column!r})" in draft.body[-1]:
        name = draft.random.choice(("target", "label", "y", "Target"))
    return f"train[{name!r}]"


def _tabular(draft: _Draft, model: str) -> None:
    facts, slips = draft.facts, draft.slips
    _start(
        draft,
        "from sklearn.compose import make_column_transformer",
        "from sklearn.impute import SimpleImputer",
        "from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler",
    )
    target = _target(draft)
    transformers = []
    if facts.numbers or draft.happens(0.1):
        draft.body.append(f"num = {_number_columns(draft)}")
        transformers.append(f"({_number_steps(draft)}, num)")
    if not transformers or draft.happens(0.85 if facts.strings else 0.1):
        draft.body.append(f"cat = {_string_columns(draft)}")
        transformers.append(f"({_encoder(draft)}, cat)")
    draft.body.append(f"pre = make_column_transformer({', '.join(transformers)})")
    reduce = f"decomposition.PCA(n_components={draft.random.choice(('2', '4', '8'))}), " if draft.happens(0.07) else ""
    draft.body.append(f"model = make_pipeline(pre, {reduce}{model})")
    fit = "model.fit(X, y)" if "undefined_name" in slips else f"model.{_misspelt(draft, 'fit')}(train, {target})"
    draft.body.append(fit)


def _number_columns(draft: _Draft) -> str:
    shown = list(draft.facts.numbers[:NAMES_SHOWN])
    if "wrong_column" in draft.slips or (shown and draft.happens(0.2)):
        names = draft.random.sample(shown, draft.random.randint(1, min(3, len(shown)))) if shown else []
        if "wrong_column" in draft.slips:
            other = draft.random.choice([draft.facts.target, *draft.facts.strings[:1], "age", "value", "x1", "feature"])
            names = [*names[:2], other if draft.happens(0.75) or not names else names[0]]
        return f"[{', '.join(map(repr, names))}]"
    return "test.select_dtypes('number').columns"


def _string_columns(draft: _Draft) -> str:
    shown = list(draft.facts.strings[:NAMES_SHOWN])
    if shown and draft.happens(0.15):
        return f"[{', '.join(map(repr, draft.random.sample(shown, draft.random.randint(1, min(2, len(shown))))))}]"
    return "test.select_dtypes(exclude='number').columns"


def _number_steps(draft: _Draft) -> str:
    imputes = "no_imputer" not in draft.slips and draft.happens(0.85 if "numbers" in draft.facts.missing else 0.4)
    steps = [f"SimpleImputer(strategy={draft.random.choice(('mean', 'median'))!r})"] if imputes else []
    if draft.happens(0.45):
        steps.append("StandardScaler()")
    return f"make_pipeline({', '.join(steps)})" if len(steps) > 1 else steps[0] if steps else "'passthrough'"


def _encoder(draft: _Draft) -> str:
    if "no_encoder" in draft.slips:
        return draft.random.choice(
            ("'passthrough'", "'passthrough'", "StandardScaler()", "SimpleImputer(strategy='mean')")
        )
    one_hot = "OneHotEncoder(handle_unknown='ignore', max_categories=20, sparse_output=False)"
    ordinal = "OrdinalEncoder(handle_unknown='use_encoded_value', unknown_value=-1)"
    return draft.random.choices(
        (one_hot, ordinal, "OneHotEncoder(sparse_output=False)", "OrdinalEncoder()"), (66, 24, 4, 6)
    )[0]


def _text(draft: _Draft, model: str) -> None:
    _start(draft, "from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer")
    target, random = _target(draft), draft.random
    column = draft.facts.text
    if "wrong_column" in draft.slips:
        column = random.choice(("text", "content", "review", "body"))
    settings = [f"max_features={random.choice(('50', '300', '1000', '3000'))}"] if draft.happens(0.7) else []
    if draft.happens(0.25):
        settings.append(random.choice(("ngram_range=(1, 2)", "min_df=3", "sublinear_tf=True")))
    steps = [f"{random.choice(('CountVectorizer', 'TfidfVectorizer', 'TfidfVectorizer'))}({', '.join(settings)})"]
    if draft.happens(0.2):
        steps.append(f"decomposition.TruncatedSVD(n_components={random.choice(('5', '20', '50'))})")
    if "no_encoder" in draft.slips:
        steps = steps[1:]
    draft.body.append(f"model = make_pipeline({', '.join([*steps, model])})")
    fit = (
        "model.fit(X, y)"
        if "undefined_name" in draft.slips
        else f"model.{_misspelt(draft, 'fit')}(train[{column!r}], {target})"
    )
    draft.body.append(fit)


def _image(draft: _Draft, model: str) -> None:
    _start(draft, "from sklearn.preprocessing import StandardScaler")
    draft.imports.insert(0, "import numpy as np")
    target, random = _target(draft), draft.random
    flat = {"train": ".reshape(len(train), -1)", "test": ".reshape(len(test), -1)"}
    if "no_encoder" in draft.slips or "wrong_column" in draft.slips:
        flat = dict(
            draft.random.choice(((("train", ""), ("test", "")), (("train", flat["train"]), ("test", flat["train"]))))
        )
    stem = random.choice(("images", "images", "train")) if "no_imputer" in draft.slips else "train_images"
    draft.body.append(f"X = np.load('input/{stem}.npy'){flat['train']}")
    draft.body.append(f"Z = np.load('input/test_images.npy'){flat['test']}")
    steps = ["StandardScaler()"] if draft.happens(0.4) else []
    if draft.happens(0.3):
        steps.append(f"decomposition.PCA(n_components={random.choice(('2', '5', '15', '30', '100'))})")
    draft.body.append(f"model = make_pipeline({', '.join([*steps, model])})")
    fit = "model.fit(X, y)" if "undefined_name" in draft.slips else f"model.{_misspelt(draft, 'fit')}(X, {target})"
    draft.body.append(fit)


def _misspelt(draft: _Draft, method: str) -> str:
    if "misspelt_method" in draft.slips and draft.random.random() < 0.3:
        draft.slips -= {"misspelt_method"}
        return {"fit": draft.random.choice(("train", "fit_model", "learn"))}[method]
    return method


def _predict_and_save(draft: _Draft, inputs: str) -> None:
    facts, slips, random = draft.facts, draft.slips, draft.random
    probability = (facts.prediction == PROBABILITY) != ("wrong_output" in slips)
    method = "predict_proba" if probability else "predict"
    if "misspelt_method" in slips:
        method = random.choice(("predictions", "predict_probability", "predict_class", "transform", "score"))
    column = (
        "[:, 1]"
        if method == "predict_proba" and random.random() < (0.95 if facts.prediction == PROBABILITY else 0.6)
        else ""
    )
    identity, target = facts.id_column, facts.target
    if "wrong_name_written" in slips:
        wrong = random.choice(("prediction", "predictions", "pred", "target", "label", "y"))
        identity, target = (
            (random.choice(("id", "Id", "row_id", "index")), target) if random.random() < 0.3 else (identity, wrong)
        )
    draft.body.append(f"sub = pd.DataFrame({{{identity!r}: ids, {target!r}: model.{method}({inputs}){column}}})")
    if "not_saved" in slips:
        return
    name = (
        random.choice(("output.csv", "predictions.csv", "input/submission.csv", "sub.csv"))
        if "saved_elsewhere" in slips
        else "submission.csv"
    )
    draft.body.append(f"sub.to_csv({name!r}{'' if 'index_written' in slips else ', index=False'})")


_WRONG_IMPORTS: Sequence[tuple[str, str]] = (
    ("from sklearn.impute import SimpleImputer", "from sklearn.preprocessing import SimpleImputer"),
    ("from sklearn.compose import make_column_transformer", "from sklearn.pipeline import make_column_transformer"),
    ("from sklearn.preprocessing import StandardScaler", "from sklearn.pipeline import StandardScaler"),
    (
        "from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer",
        "from sklearn.feature_extraction import CountVectorizer, TfidfVectorizer",
    ),
    (
        "from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler",
        "from sklearn.impute import OneHotEncoder, OrdinalEncoder, StandardScaler",
    ),
    (_SKLEARN, "from sklearn import decomposition, dummy, ensemble, linear_models, naive_bayes, neighbors, svm, trees"),
)
_PACKAGES = (
    "import xgboost as xgb",
    "import lightgbm as lgb",
    "from catboost import CatBoostClassifier",
    "import seaborn as sns",
)


def _slip_in_imports(draft: _Draft) -> None:
    if "wrong_import" in draft.slips:
        possible = [(draft.imports.index(right), wrong) for right, wrong in _WRONG_IMPORTS if right in draft.imports]
        place, wrong = draft.random.choice(possible)
        draft.imports[place] = wrong
    if "forgotten_import" in draft.slips:
        draft.imports.pop(draft.random.randrange(len(draft.imports)))
    if "unknown_package" in draft.slips:
        draft.imports.append(draft.random.choice(_PACKAGES))
