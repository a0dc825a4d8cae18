import json
import re

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.maths.logs import log_of
from wmrl_cli.__main__ import run
from wmrl_cli.maths.online import OnlineCalibrator, PairGroup
from wmrl_cli.tables import ANCHOR_PAIRS, METRICS, read_table, rows_to_table, write_table


def frame(world, groups=60, **options):
    log = log_of(world, groups, **options)

    def names(labels):
        return [labels.names[code] for code in labels.code]

    return pd.DataFrame(
        {
            "judge": log.predicted,
            "truth": log.real,
            "prompt": names(log.group),
            "task_id": names(log.task),
            "step": log.step,
            "status_predicted": names(log.status_predicted),
            "status_real": names(log.status_real),
            "seconds": log.seconds,
        }
    )


NAMES = ["--predicted", "judge", "--real", "truth", "--group", "prompt"]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.csv"
    frame("blind").to_csv(path, index=False)
    return path


def call(capfd, *arguments, code=0):
    found = run([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    assert found == code, err
    return out, err


def test_a_log_becomes_a_map_a_screen_and_a_page(capfd, log, tmp_path):
    target, report = tmp_path / "calibration.json", tmp_path / "report.html"
    out, _ = call(capfd, "calibrate", log, *NAMES, "-o", target, "--report", report, "--compare", "--study", "0.2,0.6")
    assert out.startswith("verdict: usable after the map") and "`timeout`" in out
    saved = json.loads(target.read_text())
    assert saved["pairs"] == 480 and saved["rho"] > 1 and saved["eta2_cal"] > 0
    assert np.all(np.diff(saved["map"]["knots"]) > 0) and np.all(np.diff(saved["map"]["values"]) >= 0)
    assert saved["provenance"]["config"]["method"] == "isotonic"
    html = report.read_text()
    assert html.count("<svg") == html.count("<figcaption>") >= 8
    assert not re.findall(r"(?:src|href)=|@import|url\(|nan|None", html.replace("nanmean", ""))
    assert "How many real runs are enough" in html and "blind spot" in html


def test_the_json_result_is_one_object(capfd, log):
    out, _ = call(capfd, "calibrate", log, *NAMES, "--json", "--quiet")
    found = json.loads(out)
    assert out.count("\n") == 1 and found["verdict"]["use"] == "usable after the map"
    assert found["blind"][0]["status"] == "timeout" and found["measures"]["left"]["low"] < 1


def test_two_calibrations_of_one_log_are_the_same_file(capfd, log, tmp_path):
    for name in ("a.json", "b.json"):
        call(capfd, "calibrate", "--pairs", log, *NAMES, "-o", tmp_path / name)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_the_replay_writes_what_a_live_run_would_have(capfd, tmp_path):
    # live: a calibrator fed step by step, as the training loop does
    live, rows, metrics = OnlineCalibrator(), [], []
    log = frame("drifting", 80)
    for step, groups in log.groupby("step"):
        batch = [
            PairGroup(
                group_id=name,
                task_id=group["task_id"].iloc[0],
                trajectory_ids=[f"{name}-{i}" for i in range(len(group))],
                predicted=group["judge"].tolist(),
                real=group["truth"].tolist(),
                status_predicted=group["status_predicted"].tolist(),
                status_real=group["status_real"].tolist(),
            )
            for name, group in groups.groupby("prompt", sort=False)
        ]
        observed = live.observe(int(step), batch)
        rows += observed.records
        metrics.append(observed.metrics)
    written = tmp_path / "anchor_pairs.parquet"
    write_table(ANCHOR_PAIRS, rows_to_table(ANCHOR_PAIRS, rows), written, provenance={})
    pairs, steps, target = tmp_path / "online.parquet", tmp_path / "steps.parquet", tmp_path / "c.json"
    call(capfd, "calibrate", written, "--online", pairs, "--online-steps", steps, "-o", target)
    assert read_table(ANCHOR_PAIRS, pairs).equals(read_table(ANCHOR_PAIRS, written))
    replayed = read_table(METRICS, steps).to_pylist()
    for name in ("map_version", "residual_calibrated", "eta2", "eta2_cal", "rho"):
        assert [row[name] for row in replayed] == [row[name] for row in metrics]
    saved = json.loads(target.read_text())
    assert saved["rho"] == live.rho and saved["online_map"] == live.map.to_json()


def test_a_map_is_applied_to_a_table_of_any_format(capfd, log, tmp_path):
    saved = tmp_path / "calibration.json"
    call(capfd, "calibrate", log, *NAMES, "-o", saved)
    knots = json.loads(saved.read_text())["map"]
    expected = np.interp(frame("blind")["judge"], knots["knots"], knots["values"])
    for form in ("csv", "parquet", "jsonl"):
        target = tmp_path / f"out.{form}"
        call(capfd, "calibrate", "--map", saved, "--apply", log, "--predicted", "judge", "-o", target)
        read = {"csv": pd.read_csv, "parquet": pd.read_parquet, "jsonl": lambda path: pd.read_json(path, lines=True)}[
            form
        ]
        table = read(target)
        assert table["calibrated"].to_numpy(float) == pytest.approx(expected, abs=1e-6)
        assert list(table.columns) == [*frame("blind").columns, "calibrated"]
    direct = tmp_path / "direct.parquet"
    call(capfd, "calibrate", log, *NAMES, "--apply", log, "-o", direct)
    assert pq.read_table(direct).column("calibrated").to_pylist() == pytest.approx(expected.tolist())


def test_maps_by_task_are_saved_and_applied(capfd, tmp_path):
    rows = frame("exact", 120, tasks=2, noise=0.02)
    second = rows["task_id"] == "task1"
    rows.loc[second, "judge"] = 0.1 + 0.2 * rows.loc[second, "judge"] ** 2
    path, saved, target = tmp_path / "log.parquet", tmp_path / "c.json", tmp_path / "out.parquet"
    rows.to_parquet(path)
    call(capfd, "calibrate", path, *NAMES, "--by", "task", "-o", saved)
    assert set(json.loads(saved.read_text())["maps"]["own"]) == {"task0", "task1"}
    call(capfd, "calibrate", "--map", saved, "--apply", path, "--predicted", "judge", "-o", target)
    table = pd.read_parquet(target)
    error = (table["calibrated"] - table["truth"]).abs()
    assert error[second].mean() < 0.1
    _, err = call(capfd, "calibrate", path, *NAMES, "--by", "category", code=2)
    assert "--tasks" in err


def test_a_scale_of_its_own_goes_through_to_the_calibrated_table(capfd, tmp_path):
    rows = frame("bent")
    rows[["judge", "truth"]] *= 10
    path, target = tmp_path / "log.csv", tmp_path / "out.csv"
    rows.to_csv(path, index=False)
    call(capfd, "calibrate", path, *NAMES, "--range", "0", "10", "--apply", path, "-o", target)
    calibrated = pd.read_csv(target)["calibrated"]
    assert 5 < calibrated.max() <= 10
    assert abs(calibrated.mean() - rows["truth"].mean()) < 0.2


def test_options_change_the_result(capfd, tmp_path):
    path = tmp_path / "log.csv"
    frame("drifting", 100).to_csv(path, index=False)

    def result(*more):
        return json.loads(call(capfd, "calibrate", path, *NAMES, "--json", *more)[0])

    plain = result()
    assert result("--method", "centred")["ties"]["map"]["tied"] < plain["ties"]["map"]["tied"]
    identity = result("--method", "identity")["measures"]
    assert identity["error_map"] == identity["error_raw"]
    assert result("--window", "300")["fitted_pairs"] == 300
    assert result("--limit", "80")["pairs"] == 80
    assert result("--min-pairs", "400")["eta2_cal"] != plain["eta2_cal"]
    assert result("--refit-every", "300")["eta2"] != plain["eta2"]
    assert result("--seed", "1")["measures"] != plain["measures"]
    config = tmp_path / "calibrate.toml"
    config.write_text('rho_rule = "measured"\nlevel = 0.5\n')
    configured = result("--config", config)
    assert configured["rho"] == pytest.approx(1 + plain["eta2"])
    assert configured["measures"]["bias_raw"]["low"] > plain["measures"]["bias_raw"]["low"]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["log.csv", "--predicted", "jugde", "--real", "truth"], 3, "did you mean `judge`"),
        (["log.csv", "--predicted", "judge", "--real", "status_real"], 3, "is not a number"),
        (["nothing.csv"], 3, "nothing.csv"),
        ([], 2, "no log was given"),
        (["log.csv", *NAMES, "--study", "0.1,2"], 2, "no list of fractions"),
        (["log.csv", *NAMES, "--method", "magic"], 2, "method"),
        (["log.csv", *NAMES, "--apply", "log.csv"], 2, "-o FILE"),
        (["log.csv", *NAMES, "-o", "log.csv"], 2, "read and written"),
        (["log.csv", *NAMES, "--map", "c.json", "-o", "out.csv"], 2, "--apply"),
        (["--map", "log.csv", "--apply", "log.csv", "-o", "out.csv"], 3, "is not a calibration"),
        (["log.csv", *NAMES, "--window", "5", "--min-pairs", "10"], 2, "window"),
        (["log.csv", "--predicted", "judge", "--real", "truth", "--study", "0.5"], 2, "--group"),
        (["log.csv", *NAMES, "--range", "1", "0"], 2, "is empty"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence_and_nothing_is_written(capfd, log, monkeypatch, arguments, code, words):
    monkeypatch.chdir(log.parent)
    before = log.read_bytes()
    out, err = call(capfd, "calibrate", *arguments, code=code)
    assert out == "" and words in err and "Traceback" not in err
    assert [path.name for path in log.parent.iterdir()] == ["log.csv"] and log.read_bytes() == before


def test_too_few_pairs_work_and_are_said_to_be_few(capfd, tmp_path):
    path = tmp_path / "log.csv"
    frame("bent", 3).to_csv(path, index=False)
    out, _ = call(capfd, "calibrate", path, *NAMES, "-o", tmp_path / "c.json")
    assert "only 24 pairs" in out and "identity until 200 pairs" in out


def test_a_log_without_groups_is_judged_by_its_errors(capfd, tmp_path):
    path = tmp_path / "log.csv"
    frame("bent").to_csv(path, index=False)
    out, _ = call(capfd, "calibrate", path, "--predicted", "judge", "--real", "truth", "--report", tmp_path / "r.html")
    assert "no groups" in out and "order inside groups is unknown" in out


def test_one_predicted_score_for_all_is_do_not_use(capfd, tmp_path):
    path = tmp_path / "log.csv"
    frame("bent").assign(judge=0.5).to_csv(path, index=False)
    out, _ = call(capfd, "calibrate", path, *NAMES, "--report", tmp_path / "r.html", "-o", tmp_path / "c.json")
    assert "verdict: do not use" in out and "fewer than two distinct" in out
