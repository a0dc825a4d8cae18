import io
import json
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from wmrl_cli.errors import ConfigError, TableError
from wmrl_cli.stages.calibrate import collect
from wmrl_cli.stages.calibrate.read import read_log
from wmrl_cli.tables import ANCHOR_PAIRS, SCORES, rows_to_table, write_table

ROWS = pd.DataFrame(
    {
        "judge": [0.1, 0.9, 0.4, 0.6],
        "truth": [0.0, 1.0, 0.5, 0.5],
        "prompt": ["a", "a", "b", "b"],
        "when": [1, 1, 0, 0],
        "note": ["x,y", "", 'say "hi"', "z"],
    }
)
NAMES = {"predicted": "judge", "real": "truth", "group": "prompt", "step": "when"}


def write(tmp_path, rows, form):
    path = tmp_path / f"log.{form}"
    match form:
        case "parquet":
            rows.to_parquet(path)
        case "csv":
            rows.to_csv(path, index=False)
        case "tsv":
            rows.to_csv(path, index=False, sep="\t")
        case "jsonl":
            rows.to_json(path, orient="records", lines=True)
    return path


@pytest.mark.parametrize("form", ["parquet", "csv", "tsv", "jsonl"])
def test_every_format_gives_the_same_log_in_time_order(tmp_path, form):
    log = read_log([write(tmp_path, ROWS, form)], asked=NAMES)
    assert log.predicted.tolist() == [0.4, 0.6, 0.1, 0.9] and log.real.tolist() == [0.5, 0.5, 0.0, 1.0]
    assert log.group.names == ["b", "a"] and log.step.tolist() == [0, 0, 1, 1]
    assert log.task is None and log.status_real is None


def test_standard_input_is_read_in_any_format(tmp_path, monkeypatch):
    for form in ("csv", "parquet", "jsonl"):
        content = write(tmp_path, ROWS, form).read_bytes()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        from pathlib import Path

        assert read_log([Path("-")], asked=NAMES).pairs == 4


def test_several_files_are_one_log(tmp_path):
    first, second = tmp_path / "a.csv", tmp_path / "b.jsonl"
    ROWS[:2].to_csv(first, index=False)
    ROWS[2:].to_json(second, orient="records", lines=True)
    log = read_log([first, second], asked=NAMES)
    assert log.pairs == 4 and log.groups == 2


def test_without_steps_the_order_of_rows_is_the_order_of_time(tmp_path):
    log = read_log([write(tmp_path, ROWS, "csv")], asked=NAMES | {"step": None})
    assert log.predicted.tolist() == [0.1, 0.9, 0.4, 0.6] and log.step.tolist() == [0, 0, 1, 1]


def test_steps_that_are_all_the_same_say_nothing(tmp_path):
    log = read_log([write(tmp_path, ROWS.assign(when=0), "csv")], asked=NAMES)
    assert log.step.tolist() == [0, 0, 1, 1]


def test_another_scale_is_declared_never_guessed(tmp_path):
    path = write(tmp_path, ROWS.assign(judge=[1, 9, 4, 6], truth=[0, 10, 5, 5]), "csv")
    log = read_log([path], asked=NAMES, low=0, high=10)
    assert log.predicted.tolist() == pytest.approx([0.4, 0.6, 0.1, 0.9])
    with pytest.raises(
        TableError, match=r"row 1 of .*`judge` = `1`|row 2 of .*`judge` = `9`, which is outside \[0, 1\]"
    ):
        read_log([path], asked=NAMES)
    with pytest.raises(ConfigError, match="empty"):
        read_log([path], asked=NAMES, low=1, high=1)


def test_lost_scores_are_left_out_and_counted_by_reason(tmp_path):
    rows = ROWS.assign(judge=[0.1, None, 0.4, None], truth=[0.0, 1.0, None, None])
    for form in ("csv", "parquet", "jsonl"):
        log = read_log([write(tmp_path, rows, form)], asked=NAMES)
        assert log.pairs == 1
        assert log.dropped == {"no predicted score": 1, "neither score": 1}
        assert log.simulated.tolist() == [0.4]  # its whole group was never executed


def test_a_lost_run_in_an_executed_group_is_no_simulated_trajectory(tmp_path):
    rows = ROWS.assign(truth=[0.0, None, 0.5, 0.5])
    log = read_log([write(tmp_path, rows, "csv")], asked=NAMES)
    assert log.dropped == {"no real score, in an executed group": 1} and log.simulated.size == 0


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("judge", ["0.1", "good", "0.3", "0.4"], "row 2 of .* has `judge` = `good`, which is not a number"),
        ("judge", ["0.1", "nan", "0.3", "0.4"], "row 2 of .* has `judge` = `nan`, which is no score"),
        ("truth", ["0.1", "0.2", "inf", "0.4"], "row 3 of .* has `truth` = `inf`, which is no score"),
        ("truth", ["0.1", "0.2", "0.3", "1.5"], "row 4 of .* has `truth` = `1.5`, which is outside"),
        ("when", ["1", "1", "1.5", "2"], "row 3 of .* has `when` = `1.5`, which is no whole number"),
        ("prompt", ["a", "", "b", "b"], "row 2 of .* has no `prompt`"),
    ],
)
def test_a_bad_value_is_named_with_its_row(tmp_path, column, values, words):
    path = write(tmp_path, ROWS.astype({"judge": str, "truth": str, "when": str}).assign(**{column: values}), "csv")
    with pytest.raises(TableError, match=words):
        read_log([path], asked=NAMES)
    with pytest.raises(TableError, match=words):
        texts = pd.read_csv(path, dtype=str, keep_default_na=False, na_values=[""])
        read_log([write(tmp_path, texts, "parquet")], asked=NAMES)


def test_rows_are_counted_over_batches(tmp_path, monkeypatch):
    monkeypatch.setattr("wmrl_cli.stages.calibrate.files.BATCH_ROWS", 2)
    rows = ROWS.assign(judge=[0.1, 0.9, 0.4, 7.0])
    for form in ("parquet", "jsonl"):
        with pytest.raises(TableError, match="row 4 of"):
            read_log([write(tmp_path, rows, form)], asked=NAMES)


def test_a_misspelt_column_names_the_nearest(tmp_path):
    with pytest.raises(TableError, match="no column `truht`") as caught:
        read_log([write(tmp_path, ROWS, "csv")], asked=NAMES | {"real": "truht"})
    assert "did you mean `truth`" in caught.value.hint and "--real" in caught.value.hint
    with pytest.raises(TableError, match="no column `predicted`"):
        read_log([write(tmp_path, ROWS, "jsonl")])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.csv", b"", "is empty"),
        ("header.csv", b"judge,truth,prompt,when\n", "no row has both"),
        ("torn.parquet", b"PAR1 and then nothing", "is not a Parquet file"),
        ("torn.csv", b"judge,truth,prompt,when\n0.1,0.2,a,1\n0.1,0.2\n", "is damaged"),
        (
            "torn.jsonl",
            b'{"judge": 0.1, "truth": 0.2, "prompt": "a", "when": 1}\n{"judge": ',
            "line 2 of .* is not JSON",
        ),
        (
            "list.jsonl",
            b'{"judge": 0.1, "truth": 0.2, "prompt": "a", "when": 1}\n[1]\n',
            "line 2 of .* is not a JSON object",
        ),
        ("latin.csv", b"judge,truth,prompt,when\xe9\n", "is not UTF-8"),
    ],
)
def test_a_file_that_is_no_log_gets_one_sentence(tmp_path, name, content, words):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TableError, match=words):
        read_log([path], asked=NAMES)


def test_a_folder_a_missing_file_and_no_file(tmp_path):
    with pytest.raises(TableError, match="is a folder"):
        read_log([tmp_path])
    with pytest.raises(TableError, match="could not read"):
        read_log([tmp_path / "none.csv"])
    with pytest.raises(ConfigError, match="no log"):
        read_log([])


def test_a_log_too_large_for_memory_is_refused_before_it_is_held(tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "MOST_ROWS", 3)
    path = write(tmp_path, ROWS, "csv")
    with pytest.raises(TableError, match="more than 3 rows"):
        read_log([path], asked=NAMES)
    assert read_log([path], asked=NAMES, limit=3).pairs == 3


def pair(name, **values):
    row = {
        "step": 0,
        "group_id": "g",
        "task_id": "t",
        "trajectory_id": name,
        "predicted": 0.5,
        "real": 0.4,
        "calibrated": 0.5,
        "map_version": 0,
        "status_predicted": "valid",
        "status_real": "valid",
    }
    return row | values


def test_our_anchor_pairs_need_no_column_names(tmp_path):
    path = tmp_path / "anchor_pairs.parquet"
    rows = [pair("a", status_real="timeout"), pair("b", real=0.9), pair("c", step=1, group_id="h")]
    write_table(ANCHOR_PAIRS, rows_to_table(ANCHOR_PAIRS, rows), path, provenance={})
    log = read_log([path])
    assert log.pairs == 3 and log.groups == 2 and list(log.trajectory) == ["a", "b", "c"]
    assert list(log.status_real.names) == ["timeout", "valid"] and list(log.task.names) == ["t"]
    with pytest.raises(TableError, match=r"has two pairs"):
        read_log([path, path])


def test_another_version_of_our_table_is_refused(tmp_path):
    path = tmp_path / "anchor_pairs.parquet"
    table = rows_to_table(ANCHOR_PAIRS, [pair("a")])
    pq.write_table(table.replace_schema_metadata({"wmrl.table": "anchor_pairs", "wmrl.version": "99"}), path)
    with pytest.raises(TableError, match="version `99`"):
        read_log([path])
    pq.write_table(table.replace_schema_metadata({"wmrl.table": "tasks", "wmrl.version": "1"}), path)
    with pytest.raises(TableError, match="holds a `tasks` table"):
        read_log([path])


def score(name, turn, scorer, reward, status="valid", group="g", step=0):
    row = dict.fromkeys(SCORES.schema.names)
    return row | {
        "trajectory_id": name,
        "turn": turn,
        "group_id": group,
        "task_id": "t",
        "step": step,
        "scorer": scorer,
        "status": status,
        "reward": reward,
        "wall_s": 2.0 if scorer == "sandbox" else None,
        "verdicts": [],
        "feedback": "",
        "backend": "",
        "enforcement": "",
        "cached": False,
        "detail": "",
    }


def score_files(tmp_path, predicted, real):
    paths = tmp_path / "wm.parquet", tmp_path / "real.parquet"
    for path, rows in zip(paths, (predicted, real), strict=True):
        write_table(SCORES, rows_to_table(SCORES, rows), path, provenance={})
    return list(paths)


def test_score_tables_are_joined_by_trajectory_and_the_best_turn_counts(tmp_path):
    predicted = [
        score("a", 1, "world_model", 0.1, "runtime_error"),
        score("a", 2, "world_model", 0.8),
        score("b", 1, "world_model", 0.6),
        score("c", 1, "world_model", None, "lost"),
        score("d", 1, "world_model", 0.7),
        score("s", 1, "world_model", 0.3, group="simulated"),
    ]
    real = [
        score("a", 1, "sandbox", 0.9),
        score("a", 2, "sandbox", 0.1, "timeout"),
        score("b", 1, "sandbox", 0.2, "bad_submission"),
        score("c", 1, "sandbox", 0.2, "bad_submission"),
        score("d", 1, "sandbox", None, "lost"),
    ]
    log = read_log(score_files(tmp_path, predicted, real))
    assert list(log.trajectory) == ["a", "b"]
    assert log.predicted.tolist() == [0.8, 0.6] and log.real.tolist() == [0.9, 0.2]
    assert [log.status_real.names[code] for code in log.status_real.code] == ["valid", "bad_submission"]
    assert log.simulated.tolist() == [0.3] and log.seconds.tolist() == [4.0, 2.0]
    assert log.dropped == {"lost by the world model": 1, "lost by the sandbox": 1}
    last = read_log(score_files(tmp_path, predicted, real), reward_turn="last")
    assert last.real.tolist() == [0.1, 0.2]


def test_a_lost_turn_makes_the_trajectory_lost(tmp_path):
    predicted = [score(name, 1, "world_model", 0.5) for name in "ab"]
    real = [score("a", 1, "sandbox", 0.5), score("a", 2, "sandbox", None, "lost"), score("b", 1, "sandbox", 0.6)]
    log = read_log(score_files(tmp_path, predicted, real))
    assert list(log.trajectory) == ["b"] and log.dropped == {"lost by the sandbox": 1}


def test_a_score_table_given_twice_or_beside_pairs_is_refused(tmp_path):
    paths = score_files(tmp_path, [score("a", 1, "world_model", 0.5)], [score("a", 1, "sandbox", 0.5)])
    with pytest.raises(TableError, match="scored twice by `world_model`"):
        read_log([*paths, paths[0]])
    with pytest.raises(ConfigError, match="mixed"):
        read_log([*paths, write(tmp_path, ROWS, "csv")])
    with pytest.raises(TableError, match="no row has both"):
        read_log([paths[0]])


def test_labels_are_one_name_in_every_format(tmp_path):
    rows = ROWS.assign(prompt=[1, 1, 2, 2])
    names = [read_log([write(tmp_path, rows, form)], asked=NAMES).group.names for form in ("csv", "jsonl", "parquet")]
    assert names == [["2", "1"]] * 3


def test_dictionary_and_large_text_columns_are_text(tmp_path):
    path = tmp_path / "log.parquet"
    table = pa.table(
        {
            "judge": pa.array([0.1, 0.2], pa.float32()),
            "truth": pa.array([True, False]),
            "prompt": pa.array(["a", "b"]).dictionary_encode(),
            "when": pa.array([1, 2], pa.int8()),
        }
    )
    pq.write_table(table, path)
    log = read_log([path], asked=NAMES)
    assert log.real.tolist() == [1.0, 0.0] and log.group.names == ["a", "b"]
    assert log.predicted.tolist() == [np.float32(0.1), np.float32(0.2)]
    assert json.dumps(log.real.tolist())
