"""What of a trajectories table is executed, by whom, and what it cost."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sandbox.tasks import make_task
from wmrl_cli.environment import Outcome
from wmrl_cli.errors import TableError, UnavailableError
from wmrl_cli.maths.outcomes import Status
from wmrl_cli.sandbox.base import Capabilities
from wmrl_cli.stages.execute import COLUMNS, Execute, ExecuteConfig, choose_rows, estimate, read_scripts, totals
from wmrl_cli.stages.rows import score_row
from wmrl_cli.tables import SCORES, TASKS, TRAJECTORIES, provenance, rows_to_table, write_table


def turns(steps=3, groups=5, members=2, turns=2):
    return [
        {
            "trajectory_id": f"{step}-{group}-{member}",
            "turn": turn,
            "group_id": f"{step}-{group}",
            "task_id": "pair",
            "step": step,
            "script": "pass",
            "seed": 1,
        }
        for step in range(steps)
        for group in range(groups)
        for member in range(members)
        for turn in range(1, turns + 1)
    ]


def as_table(rows):
    schema = pa.schema([TRAJECTORIES.schema.field(name) for name in COLUMNS])
    return pa.Table.from_pylist(rows, schema=schema)


def groups_of(table):
    return set(table.column("group_id").to_pylist())


@given(st.integers(0, 99), st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]), st.integers(1, 4))
def test_shards_are_whole_groups_apart_and_together_the_draw(seed, frac, shards):
    table = as_table(turns())
    whole = choose_rows(table, ExecuteConfig(anchor_frac=frac, seed=seed))
    parts = [choose_rows(table, ExecuteConfig(anchor_frac=frac, seed=seed, shard=(i, shards))) for i in range(shards)]
    assert sum(part.num_rows for part in parts) == whole.num_rows
    assert set().union(*map(groups_of, parts)) == groups_of(whole)
    for part in (whole, *parts):
        assert part.num_rows == 4 * len(groups_of(part))  # two trajectories of two turns each
    assert abs(len(groups_of(whole)) - 15 * frac) < 1


def test_rows_may_come_in_any_order_of_steps():
    rows = turns()
    config = ExecuteConfig(anchor_frac=0.4, seed=3)
    forward, backward = (
        choose_rows(as_table(part), config) for part in (rows, sorted(rows, key=lambda row: -row["step"]))
    )
    assert groups_of(forward) == groups_of(backward)


def test_a_limit_takes_the_first_rows():
    assert choose_rows(as_table(turns()), ExecuteConfig(anchor_frac=1.0, limit=3)).num_rows == 3


@pytest.mark.parametrize("wrong", [{"anchor_frac": 1.5}, {"shard": (2, 2)}, {"shard": (-1, 2)}])
def test_a_wrong_share_or_shard_is_refused(wrong):
    with pytest.raises(ValueError):
        ExecuteConfig(**wrong)


def write_trajectories(path, rows):
    more = {
        "environment": "world_model",
        "prompt_ids": [1],
        "response_ids": [2],
        "sampler_logprobs": [-1.0],
        "finish_reason": "stop",
        "text": "",
        "script_digest": None,
        "observation": None,
        "policy_digest": "p",
        "seconds": 0.1,
    }
    write_table(
        TRAJECTORIES,
        rows_to_table(TRAJECTORIES, [{**row, **more} for row in rows]),
        path,
        provenance=provenance("test"),
    )


def test_a_table_of_another_kind_or_of_unknown_tasks_is_refused(tmp_path):
    task, path = make_task(tmp_path), tmp_path / "t.parquet"
    write_trajectories(path, turns())
    assert read_scripts(path, [task]).num_rows == len(turns())
    write_trajectories(path, [{**turns()[0], "task_id": "other"}])
    with pytest.raises(TableError, match="`other`"):
        read_scripts(path, [task])
    write_trajectories(path, [])
    with pytest.raises(TableError, match="no trajectories"):
        read_scripts(path, [task])
    write_table(TASKS, rows_to_table(TASKS, [task.to_row()]), path, provenance=provenance("test"))
    with pytest.raises(TableError, match="`tasks` table"):
        read_scripts(path, [task])


class Answering:
    """An environment that answers with given outcomes."""

    scorer = "sandbox"

    def __init__(self, *outcomes):
        self.outcomes = outcomes

    def step(self, attempts):
        return [self.outcomes[index % len(self.outcomes)] for index in range(len(attempts))]


GOOD = Outcome(
    status=Status.VALID,
    reward=0.75,
    q=0.5,
    raw_metric=1.0,
    wall_s=2.0,
    cpu_s=1.0,
    queue_s=0.5,
    peak_memory_bytes=7,
    backend="b",
    enforcement="x=y",
)
LOST = Outcome(status=Status.LOST, reward=None, detail="gone")


def gone():
    return Capabilities(backend="docker", available=False, reason="no engine answers")


def well():
    return Capabilities(backend="docker", available=True)


def test_lost_rows_are_rows_unless_the_sandbox_itself_is_gone(tmp_path):
    tasks, batch = [make_task(tmp_path)], as_table(turns(steps=1, groups=1))
    for check in (None, well):
        scores = Execute(tasks, Answering(GOOD, LOST), check)(batch)
        assert scores.column("reward").to_pylist() == [0.75, None, 0.75, None]
    with pytest.raises(UnavailableError, match="no engine answers"):
        Execute(tasks, Answering(GOOD, LOST), gone)(batch)
    assert Execute(tasks, Answering(GOOD), gone)(batch).num_rows == 4  # nothing lost: nobody asks


def test_totals_by_hand():
    outcomes = [GOOD, LOST, Outcome(status=Status.MALFORMED, reward=0.0), Outcome(**{**GOOD.__dict__, "cached": True})]
    ids = {"trajectory_id": "t", "turn": 1, "group_id": "g", "task_id": "k", "step": 0}
    table = rows_to_table(SCORES, [score_row(outcome, scorer="sandbox", trajectory=ids) for outcome in outcomes])
    found = totals(table)
    assert (found["scripts"], found["executed"], found["cached"], found["lost"]) == (4, 1, 1, 1)
    assert found["mean_reward"] == 0.5  # (0.75 + 0 + 0.75) / 3: the lost row is in no mean
    assert found["share_valid"] == pytest.approx(2 / 3) and "share_lost" not in found
    assert (found["wall_s"], found["saved_s"], found["cpu_s"], found["gpu_s"]) == (2.0, 2.0, 1.0, None)
    assert found["peak_memory_bytes"] == 7 and found["enforcement"] == "b: x=y"


def test_totals_of_nothing_but_lost_rows_have_no_mean():
    ids = {"trajectory_id": "t", "turn": 1, "group_id": "g", "task_id": "k", "step": 0}
    found = totals(rows_to_table(SCORES, [score_row(LOST, scorer="sandbox", trajectory=ids)]))
    assert found["mean_reward"] is None and found["lost"] == 1 and found["wall_s"] is None


def test_an_estimate_comes_from_what_was_measured():
    assert estimate(10, [1.0, 3.0], slots=4, wall_limit_s=30.0) == {"expected_s": 5.0, "at_most_s": 75.0}
    assert estimate(10, [], slots=1, wall_limit_s=30.0) == {"expected_s": None, "at_most_s": 300.0}
