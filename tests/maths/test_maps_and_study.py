import numpy as np
import pytest

from tests.maths.logs import log_of
from wmrl_cli.maths.analysis import CalibrateConfig, analyse, summary
from wmrl_cli.maths.comparison import compare_maps
from wmrl_cli.maths.label_maps import cross_fit_labels, fit_label_maps
from wmrl_cli.maths.pair_log import make_log
from wmrl_cli.maths.study import study_fractions


def two_tasks(*, same: bool, groups: int = 80):
    """Two tasks; in the second the world model is far too low, unless `same`."""
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(groups), 8)
    real = rng.random(group.size)
    second = group % 2 == 1
    predicted = np.where(second & ~np.array(same), 0.1 + 0.2 * real**3, real)
    predicted = np.clip(predicted + rng.normal(0, 0.03, group.size), 0, 1)
    return make_log(predicted, real, groups=group, tasks=np.where(second, "low", "high"))


def test_a_label_gets_its_own_map_where_held_out_groups_justify_it():
    log = two_tasks(same=False)
    maps = fit_label_maps(log.predicted, log.real, log.group.code, log.task)
    assert set(maps.own) == {"low", "high"}
    assert all(fit.residual_own < fit.residual_global for fit in maps.fits)
    held_out = cross_fit_labels(log.predicted, log.real, log.group.code, log.task)
    overall = fit_label_maps(log.predicted, log.real, log.group.code, log.task).overall(log.predicted)
    assert np.mean((held_out - log.real) ** 2) < 0.5 * np.mean((overall - log.real) ** 2)


def test_labels_that_are_alike_share_the_global_map():
    log = two_tasks(same=True)
    maps = fit_label_maps(log.predicted, log.real, log.group.code, log.task)
    assert maps.own == {} and [fit.share for fit in maps.fits] == [0.0, 0.0]
    assert maps(log.predicted, log.task).tolist() == maps.overall(log.predicted).tolist()


def test_a_label_with_few_groups_keeps_the_global_map():
    log = two_tasks(same=False, groups=12)
    assert fit_label_maps(log.predicted, log.real, log.group.code, log.task).own == {}


def test_kinds_of_map_are_compared_on_the_same_folds():
    rows = {row.name: row for row in compare_maps(two_tasks(same=False), draws=200)}
    assert set(rows) == {"identity", "isotonic", "centred", "isotonic by task"}
    assert rows["isotonic by task"].noise.estimate < rows["isotonic"].noise.estimate < rows["identity"].noise.estimate
    assert rows["centred"].tied < rows["isotonic"].tied
    assert rows["identity"].tied <= rows["centred"].tied


def test_more_anchors_leave_less_noise_and_a_steadier_rho():
    rows = study_fractions(log_of("bent", 200), [0.05, 0.3, 1.0], repeats=4, draws=200)
    none, some, whole = rows
    assert (
        none.fitted == 0 and none.rho == 1.0 and none.noise.estimate == pytest.approx(none.noise_raw.estimate, rel=0.02)
    )
    assert some.fitted == 1 and some.noise.estimate < 0.95 * none.noise.estimate
    assert some.noise.low < some.noise.estimate < some.noise.high
    assert whole.anchor_groups == 200 and np.isnan(whole.noise.estimate) and whole.rho_error == 0
    assert none.rho_error > some.rho_error
    assert none.seconds < some.seconds < whole.seconds == pytest.approx(200 * 8 * 10, rel=0.05)


def test_a_useless_world_model_has_its_groups_flattened():
    row = study_fractions(log_of("reversed", 120), [0.5], repeats=2, draws=100)[0]
    assert row.flattened.estimate > 0.4
    assert study_fractions(log_of("bent", 120), [0.5], repeats=2, draws=100)[0].flattened.estimate < 0.05


def test_a_study_is_told_by_its_seed():
    log = log_of("bent", 60)
    one, again, other = (study_fractions(log, [0.5], repeats=2, draws=50, seed=seed) for seed in (1, 1, 2))
    assert one == again and one != other
    with pytest.raises(ValueError, match=r"\(0, 1\]"):
        study_fractions(log, [0.0])


def test_an_analysis_holds_the_newest_window_only():
    log = log_of("drifting", 100)
    whole, newest = analyse(log), analyse(log, CalibrateConfig(window=400))
    assert whole.fitted_pairs == 800 and newest.fitted_pairs == 400
    assert whole.score_map.values.tolist() != newest.score_map.values.tolist()
    assert newest.log.pairs == 800


def test_maps_by_task_reach_the_numbers_of_the_analysis():
    log = two_tasks(same=False)
    plain, own = analyse(log), analyse(log, CalibrateConfig(by="task"))
    assert own.diagnosis.overall["noise_map"].estimate < plain.diagnosis.overall["noise_map"].estimate
    with pytest.raises(ValueError, match="by category"):
        analyse(log, CalibrateConfig(by="category"))


def test_what_an_analysis_cannot_tell_is_refused():
    with pytest.raises(ValueError, match="groups"):
        analyse(make_log([0.1, 0.9], [0, 1]), fractions=[0.5])
    with pytest.raises(ValueError, match="level"):
        CalibrateConfig(level=95)


def test_the_summary_is_plain_values():
    import json

    values = summary(analyse(log_of("blind", 60), compare=True, fractions=[0.5]))
    assert json.loads(json.dumps(values))["verdict"]["use"] == "usable after the map"
    assert values["blind"][0]["status"] == "timeout"
    assert {"study", "comparison", "confusion", "rho", "eta2_cal", "measures"} <= values.keys()
