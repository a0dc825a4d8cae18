from __future__ import annotations

import subprocess
import sys

import pytest

from wmrl_cli.maths.outcomes import RewardLadder, Status
from wmrl_cli.prompts.observation import predicted_observation, sandbox_observation, traceback_text
from wmrl_cli.sandbox.gate import gate


def stderr_of(script, tmp_path):
    (tmp_path / "solution.py").write_text(script)
    return subprocess.run([sys.executable, tmp_path / "solution.py"], capture_output=True, text=True).stderr


def test_a_predicted_crash_reads_like_a_real_one(tmp_path):
    script = "columns = ['a']\n\nif columns:\n    raise KeyError('b')\n"
    real = sandbox_observation(Status.RUNTIME_ERROR, stderr=stderr_of(script, tmp_path))
    predicted = predicted_observation(
        Status.RUNTIME_ERROR, script=script, output="KeyError: 'b'", error_class="KeyError", line=4
    )
    assert predicted == real
    assert real.endswith("KeyError: 'b'")


def test_a_script_that_does_not_compile_reads_as_python_says_it(tmp_path):
    script = "x = (1\nprint(x)\n"
    real = sandbox_observation(Status.SYNTAX_ERROR, stderr=stderr_of(script, tmp_path))
    assert gate(script, RewardLadder()).observation == real


def test_a_valid_script_shows_score_and_position_in_both_worlds():
    real = sandbox_observation(Status.VALID, raw_metric=0.81254, metric="accuracy", q=0.6)
    assert real == predicted_observation(Status.VALID, raw_metric=0.81254, metric="accuracy", q=0.6)
    assert "accuracy = 0.8125" in real
    assert "position: 0.60" in real


def test_the_score_can_be_kept_from_the_agent():
    text = sandbox_observation(Status.VALID, raw_metric=0.8, metric="accuracy", q=0.6, show_score=False)
    assert "0.8" not in text
    assert "0.6" not in text


def test_a_refused_submission_names_the_reason_in_both_worlds():
    real = sandbox_observation(Status.BAD_SUBMISSION, detail="the column `y` is missing")
    assert real == predicted_observation(Status.BAD_SUBMISSION, output="the column `y` is missing")
    assert "the column `y` is missing" in real


def test_the_errors_come_last_and_paths_are_shortened():
    text = sandbox_observation(
        Status.RUNTIME_ERROR,
        stdout="epoch 1\n",
        stderr='  File "/tmp/x/solution.py", line 3, in <module>\nValueError: no\n',
    )
    assert text.splitlines()[-2:] == ['  File "solution.py", line 3, in <module>', "ValueError: no"]
    assert text.index("epoch 1") < text.index("ValueError")


@pytest.mark.parametrize(
    ("output", "error_class", "last"),
    [
        ("", "KeyError", "KeyError"),
        ("", None, "Exception"),
        ("", "other", "Exception"),  # a word that is no class
        ("'b' not found", "KeyError", "KeyError: 'b' not found"),
        ("noise\nTypeError: bad", "KeyError", "TypeError: bad"),  # what the expert wrote wins
        ("sklearn.exceptions.NotFittedError: no", None, "sklearn.exceptions.NotFittedError: no"),
    ],
)
def test_the_last_line_of_a_traceback_names_the_class(output, error_class, last):
    assert traceback_text("x\n", output, error_class, None).splitlines()[-1] == last


def test_a_line_that_the_script_does_not_have_is_not_shown():
    assert "line 9" not in traceback_text("x = 1\n", "", "KeyError", 9)


def test_a_whole_traceback_by_the_expert_is_kept():
    written = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: x'
    assert traceback_text("x\n", written, "KeyError", 1) == written


@pytest.mark.parametrize("status", list(Status))
def test_every_status_has_its_own_words(status):
    texts = {sandbox_observation(other) for other in Status}
    assert len(texts) == len(Status)
    assert status.value in sandbox_observation(status)
