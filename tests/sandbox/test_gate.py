from __future__ import annotations

import threading
import warnings

import pytest

from wmrl_cli.maths.outcomes import RewardLadder, Status
from wmrl_cli.sandbox.gate import compile_fault, gate

LADDER = RewardLadder(syntax_error=0.03, malformed=0.01)


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        ("x = (1\n", "SyntaxError"),
        ("print 3\n", "SyntaxError"),
        ("x = 1\n" * 5000 + "return\n", "SyntaxError"),  # only at the end of a long script
        ("if True:\n  x = 1\n\ty = 2\n", "TabError"),
        ("a\0b", "SyntaxError"),
        ("# -*- coding: no-such-code -*-\nx = 1\n", "SyntaxError"),
        ("x = '\ud800'", "UnicodeEncodeError"),
        ("(" * 300, "SyntaxError"),
        ("-" * 200_000 + "1", "MemoryError"),
        ("x = " + "+".join(["1"] * 30_000), "RecursionError"),
    ],
    ids=range(10),
)
def test_what_python_cannot_compile_is_a_syntax_error(script, fault):
    outcome = gate(script, LADDER)
    assert (outcome.status, outcome.reward, outcome.error_class) == (Status.SYNTAX_ERROR, 0.03, fault)
    assert fault in outcome.observation


@pytest.mark.parametrize(
    "script",
    [
        "",
        "x = 1",
        "raise ValueError",
        "'\\d'",
        "\ufeffx = 1",
        "# -*- coding: latin-1 -*-\nx = 1\n",
        "def f(x: No): pass",
        "x = 1\r\n",
    ],
)
def test_what_compiles_is_left_to_the_sandbox(script):
    assert gate(script, LADDER) is None


def test_a_reply_without_a_script_is_malformed():
    outcome = gate(None, LADDER)
    assert (outcome.status, outcome.reward) == (Status.MALFORMED, 0.01)


def test_our_own_future_imports_are_not_the_scripts():
    # our modules postpone annotations, where this one is forbidden
    assert compile_fault("def f(x: (y := 1)): pass") is None
    assert compile_fault("from __future__ import annotations\ndef f(x: (y := 1)): pass") is not None


def test_a_script_that_only_warns_compiles_and_leaves_the_filters_alone():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        threads = [threading.Thread(target=compile_fault, args=("x = '\\d' is 1\n",)) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert compile_fault("x = '\\d' is 1\n") is None
        assert warnings.filters == before
