"""The file runner: parts, resuming, keys, locks."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from wmrl_cli import runner, tables
from wmrl_cli.errors import ConfigError, StageError, TableError
from wmrl_cli.tables import ANCHOR_PAIRS


def pairs(count: int) -> pa.Table:
    rows = [
        {
            "step": index,
            "group_id": f"g{index // 4}",
            "task_id": "t",
            "trajectory_id": f"a{index}",
            "predicted": index / max(1, count),
            "real": 0.5,
            "calibrated": 0.5,
            "map_version": 0,
            "status_predicted": "valid",
            "status_real": "valid",
        }
        for index in range(count)
    ]
    return tables.rows_to_table(ANCHOR_PAIRS, rows)


class Double:
    """Doubles `step`, and remembers what it saw."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.seen: list[int] = []
        self.fail_at = fail_at

    def __call__(self, batch: pa.Table) -> pa.Table:
        if len(self.seen) == self.fail_at:
            raise KeyboardInterrupt
        self.seen.append(batch.num_rows)
        rows = [{**row, "step": 2 * row["step"]} for row in batch.to_pylist()]
        return tables.rows_to_table(ANCHOR_PAIRS, rows)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.parquet"
    tables.write_table(ANCHOR_PAIRS, pairs(10), path, provenance={})
    return path


def planned(source: Path | pa.Table, target: Path, **changes: Any) -> runner.Plan:
    options: dict[str, Any] = {
        "stage": "double",
        "config": {"seed": 0},
        "reads": ANCHOR_PAIRS,
        "batch_rows": 4,
        **changes,
    }
    return runner.plan(source, {target: ANCHOR_PAIRS}, **options)


def steps(path: Path) -> list[int]:
    return list(tables.read_table(ANCHOR_PAIRS, path).column("step").to_pylist())


def left_overs(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_rows_keep_their_order_and_progress_counts_them(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "new" / "out.parquet"
    stage = Double()
    assert list(runner.run(planned(source, target), stage)) == [0, 4, 8, 10]
    assert stage.seen == [4, 4, 2]
    assert steps(target) == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18]
    assert left_overs(target.parent) == []
    maker = tables.check_kind(ANCHOR_PAIRS, target)
    assert (maker["stage"], maker["config"], maker["input"]) == ("double", {"seed": 0}, str(source))


def test_an_interrupted_run_goes_on_where_it_was(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    with pytest.raises(KeyboardInterrupt):
        list(runner.run(planned(source, target), Double(fail_at=2)))
    assert not target.exists()
    again = Double()
    work = planned(source, target)
    assert work.rows_done == 8
    assert list(runner.run(work, again)) == [8, 10]
    assert again.seen == [2]
    assert steps(target) == [2 * index for index in range(10)]


def test_a_finished_run_has_nothing_to_do(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    list(runner.run(planned(source, target), Double()))
    before = target.stat().st_mtime_ns
    work = planned(source, target)
    assert work.finished
    stage = Double()
    assert list(runner.run(work, stage)) == [10]
    assert stage.seen == [] and target.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    "change", [{"config": {"seed": 1}}, {"batch_rows": 5}, {"stage": "triple"}], ids=["config", "batch_rows", "stage"]
)
def test_parts_of_another_configuration_are_never_used(source: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    target = tmp_path / "out.parquet"
    with pytest.raises(KeyboardInterrupt):
        list(runner.run(planned(source, target), Double(fail_at=2)))
    other = Double()
    list(runner.run(planned(source, target, **change), other))
    assert sum(other.seen) == 10


def test_parts_of_another_input_or_code_version_are_never_used(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out.parquet"
    key = planned(source, target).key
    other = tmp_path / "other.parquet"
    tables.write_table(ANCHOR_PAIRS, pairs(11), other, provenance={})
    assert planned(other, target).key != key
    monkeypatch.setattr(runner, "__version__", "0.0.0")
    assert planned(source, target).key != key


def test_a_target_of_another_configuration_is_refused_until_forced(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    list(runner.run(planned(source, target), Double()))
    with pytest.raises(ConfigError, match=r"out\.parquet` was written by another configuration") as caught:
        planned(source, target, config={"seed": 1})
    assert caught.value.hint is not None and "--force" in caught.value.hint
    list(runner.run(planned(source, target, config={"seed": 1}, force=True), Double()))
    assert tables.check_kind(ANCHOR_PAIRS, target)["config"] == {"seed": 1}


def test_a_file_that_is_not_ours_is_never_overwritten_unasked(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "notes.txt"
    target.write_text("precious")
    with pytest.raises(ConfigError, match="another configuration"):
        planned(source, target)
    assert target.read_text() == "precious"


def test_seal_refuses_parts_that_do_not_number_what_the_input_implies(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    work = planned(source, target)
    with pytest.raises(KeyboardInterrupt):
        list(runner.run(work, Double(fail_at=2)))
    with pytest.raises(StageError, match="lacks part 2 of 3"):
        runner.seal(work)
    assert not target.exists()


def test_seal_refuses_a_part_of_another_run(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    work = planned(source, target)
    with pytest.raises(KeyboardInterrupt):
        list(runner.run(work, Double(fail_at=2)))
    alien = work.part(1, ANCHOR_PAIRS)
    tables.write_table(ANCHOR_PAIRS, pairs(4), alien, provenance={"key": "another", "part": 1})
    with pytest.raises(StageError, match="is not part 1 of this run"):
        list(runner.run(planned(source, target), Double()))
    assert not target.exists()


def test_a_table_in_memory_gives_what_its_file_gives(source: Path, tmp_path: Path) -> None:
    list(runner.run(planned(source, tmp_path / "a.parquet"), Double()))
    list(runner.run(planned(pairs(10), tmp_path / "b.parquet"), Double()))
    assert steps(tmp_path / "a.parquet") == steps(tmp_path / "b.parquet")


def test_the_digest_of_a_table_knows_values_and_not_chunks() -> None:
    whole = pairs(10)
    chunked = pa.concat_tables([whole.slice(0, 3), whole.slice(3)])
    assert runner.table_digest(whole) == runner.table_digest(chunked)
    assert runner.table_digest(whole) != runner.table_digest(pairs(9))


def test_an_empty_input_gives_an_empty_table(tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    stage = Double()
    assert list(runner.run(planned(pairs(0), target), stage)) == [0]
    assert steps(target) == [] and stage.seen == []


def test_a_stage_may_write_two_tables(source: Path, tmp_path: Path) -> None:
    targets = {tmp_path / "a.parquet": ANCHOR_PAIRS, tmp_path / "b.parquet": tables.SCORES}

    def both(batch: pa.Table) -> tuple[pa.Table, pa.Table]:
        return Double()(batch), tables.rows_to_table(tables.SCORES, [])

    def plan() -> runner.Plan:
        return runner.plan(source, targets, stage="both", config={}, reads=ANCHOR_PAIRS, batch_rows=4)

    list(runner.run(plan(), both))
    assert plan().finished
    assert tables.read_table(tables.SCORES, tmp_path / "b.parquet").num_rows == 0
    (tmp_path / "b.parquet").unlink()
    assert not plan().finished


def test_a_stage_that_returns_too_few_tables_is_a_programming_error(source: Path, tmp_path: Path) -> None:
    targets = {tmp_path / "a.parquet": ANCHOR_PAIRS, tmp_path / "b.parquet": tables.SCORES}
    work = runner.plan(source, targets, stage="both", config={}, reads=ANCHOR_PAIRS)
    with pytest.raises(ValueError, match="zip"):
        list(runner.run(work, Double()))


def test_a_source_of_another_kind_is_refused_before_anything_is_written(source: Path, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="a `scores` table is needed"):
        planned(source, tmp_path / "out.parquet", reads=tables.SCORES)
    assert left_overs(tmp_path) == []


def test_two_runs_on_one_target_are_refused(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    first: Iterator[int] = runner.run(planned(source, target), Double())
    next(first)
    with pytest.raises(StageError, match="another process is writing"):
        list(runner.run(planned(source, target), Double()))
    list(first)
    assert steps(target)[-1] == 18


KILLED = """
    import sys, time
    from pathlib import Path
    from wmrl_cli import runner, tables

    def slow(batch):
        time.sleep(0.15)
        return batch

    source, target = map(Path, sys.argv[1:])
    work = runner.plan(source, {target: tables.ANCHOR_PAIRS}, stage="slow", config={},
                       reads=tables.ANCHOR_PAIRS, batch_rows=1)
    for done in runner.run(work, slow):
        print(done, flush=True)
"""


def test_a_killed_run_goes_on_and_its_lock_dies_with_it(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.parquet"
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(source), str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        while child.stdout.readline().strip() != "3":
            assert child.poll() is None
        child.send_signal(signal.SIGKILL)
    assert not target.exists()
    started = time.monotonic()
    second = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert int(second.stdout.split()[0]) >= 3, "the finished parts were done again"
    assert time.monotonic() - started < 30
    assert tables.read_table(ANCHOR_PAIRS, target).equals(pairs(10))
    assert left_overs(tmp_path) == []


def test_a_full_disk_is_a_sentence_and_keeps_the_parts(source: Path, tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import resource, sys
        from pathlib import Path
        from wmrl_cli import runner, tables
        from wmrl_cli.errors import StageError

        import signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        seen = 0

        def stage(batch):
            global seen
            seen += 1
            if seen == 2:
                resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
            return batch

        source, target = map(Path, sys.argv[1:])
        work = runner.plan(source, {target: tables.ANCHOR_PAIRS}, stage="s", config={}, reads=tables.ANCHOR_PAIRS,
                           batch_rows=4)
        try:
            list(runner.run(work, stage))
        except StageError as error:
            print(error.message)
            print(work.rows_done)
    """)
    target = tmp_path / "out.parquet"
    result = subprocess.run(
        [sys.executable, "-c", code, str(source), str(target)], stdout=subprocess.PIPE, text=True, check=True
    )
    sentence, done = result.stdout.splitlines()
    assert sentence.startswith("could not write") and "File too large" in sentence
    assert done == "4"
    assert not target.exists()
