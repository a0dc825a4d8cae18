"""The reference solutions behind the leaderboards: really fitted, spread over good and bad, made again as stored."""

import math

import pytest

from wmrl_cli.benchmarks.offline import build_task
from wmrl_cli.benchmarks.offline_specs import load_board, load_specs
from wmrl_cli.benchmarks.portfolio import reference_scores


@pytest.mark.parametrize("name", ["wine-cultivar", "diabetes-progression"])
def test_reference_solutions_score_as_the_stored_board_says(tmp_path, name):
    task = build_task(load_specs()[name], tmp_path / name, root=tmp_path, scores=(0.0,))
    scores = reference_scores(task, limit=9)
    board = load_board(name)
    spread = max(board) - min(board)
    assert len(scores) == 9 and all(math.isfinite(score) for score in scores.values())
    for score in scores.values():
        assert (
            min(abs(score - entry) for entry in board) < 0.02 * spread
        )  # other versions of scikit-learn differ a little
    dummy = next(score for solution, score in scores.items() if "dummy" in solution)
    better = [score for score in scores.values() if (score > dummy) == task.higher_is_better]
    assert len(better) >= 6


def test_reference_solutions_see_no_answers(tmp_path):
    """With the answers replaced by constants, the same predictions are made: only their scores change."""
    task = build_task(load_specs()["diabetes-progression"], tmp_path / "a", root=tmp_path, scores=(0.0,))
    path = task.private_path / "answers.csv"
    path.write_text(
        "patient_id,progression\n"
        + "".join(f"{line.split(',')[0]},100\n" for line in path.read_text().splitlines()[1:])
    )
    scores = reference_scores(task, limit=3)
    assert all(score > 5 for score in scores.values())
