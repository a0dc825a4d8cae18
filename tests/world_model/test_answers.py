from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from pytest import approx

from tests.world_model.scripted import ScriptedEngine, ShortPack, failure_schema, log
from wmrl_cli.prompts.base import QUALITY
from wmrl_cli.world_model.answers import fits_schema, read_choice, read_document, read_verdict

CHOICES = {expert.name: expert for expert in ShortPack("choice").experts}
JSON = {expert.name: expert for expert in ShortPack("json").experts}
FAILS = {"verdict": "fail", "line": 3, "error_class": "KeyError", "output": "KeyError: 'b'"}
PASSES = {"verdict": "pass", "line": 0, "error_class": "", "output": ""}


def reply(text, logprob=0.0):
    return ScriptedEngine(logprob=logprob)._completion(text if isinstance(text, str) else json.dumps(text))


def verdict(answer, logprob=0.0):
    return read_verdict(JSON["data"], reply(answer, logprob), ScriptedEngine().tokenizer)


def test_a_choice_fails_with_all_that_does_not_pass_and_names_the_likeliest():
    read = read_choice(CHOICES["data"], log(0.7, 0.1, 0.2))
    assert read.fails == approx(0.3)
    assert read.error_class == "timeout"


def test_a_verdict_in_json_is_compared_without_a_class():
    read = read_choice(JSON["data"], log(0.25, 0.75))
    assert (read.fails, read.error_class) == (approx(0.75), None)


def test_log_probabilities_need_not_be_normalised():
    assert read_choice(CHOICES["data"], log(0.7, 0.1, 0.2) - 400).fails == approx(0.3)


@pytest.mark.parametrize(
    ("shares", "q"),
    [([0.1] * 10, 0.5), ([0] * 9 + [1], 0.95), ([1] + [0] * 9, 0.05), ([0.5] + [0] * 8 + [0.5], 0.5)],
)
def test_quality_is_the_mean_of_the_tenths(shares, q):
    assert read_choice(CHOICES[QUALITY], log(*shares)).fails == approx(q)


@pytest.mark.parametrize("logprobs", [None, np.array([0.0]), np.array([0.0, np.nan, 0.0])])
def test_missing_or_broken_probabilities_are_no_verdict(logprobs):
    assert read_choice(CHOICES["data"], logprobs) is None


def test_a_written_failure_keeps_its_details():
    read = verdict(FAILS, logprob=math.log(0.8))
    assert read.fails == approx(0.8)
    assert (read.line, read.error_class, read.output) == (3, "KeyError", "KeyError: 'b'")


def test_a_written_pass_fails_with_the_rest_and_has_no_details():
    read = verdict(PASSES, logprob=math.log(0.8))
    assert read.fails == approx(0.2)
    assert (read.line, read.error_class, read.output) == (None, None, None)


def test_without_log_probabilities_the_word_decides():
    assert verdict(FAILS, logprob=float("nan")).fails == 1.0
    assert verdict(PASSES, logprob=-math.inf).fails == 0.0


def test_the_token_in_which_the_verdict_begins_is_the_one_that_is_read():
    tokenizer, start = ScriptedEngine().tokenizer, '{"verdict": "'
    completion = reply(FAILS)
    ends = [len(tokenizer.decode(completion.ids[: n + 1])) for n in range(len(completion.ids))]
    deciding = next(n for n, end in enumerate(ends) if end > len(start))
    logprobs = tuple(math.log(0.6 if n == deciding else 0.01) for n in range(len(ends)))
    read = read_verdict(JSON["data"], dataclasses.replace(completion, logprobs=logprobs), tokenizer)
    assert read.fails == approx(0.6)


@pytest.mark.parametrize(
    "text",
    [
        "The script fails in line 3.",
        '{"verdict": "fail", "line": 3, ...',  # cut by its length
        json.dumps(PASSES) + "...",  # whole by luck, but cut
        json.dumps([FAILS]),
        json.dumps({**FAILS, "line": "3"}),
        json.dumps({**FAILS, "line": True}),
        json.dumps({**FAILS, "line": -1}),
        json.dumps({**FAILS, "line": 100}),
        json.dumps({**FAILS, "line": float("nan")}),
        json.dumps({**FAILS, "verdict": "maybe"}),
        json.dumps({**FAILS, "output": "x" * 21}),
        json.dumps({**FAILS, "why": "because"}),
        json.dumps({"verdict": "fail"}),
        "",
    ],
)
def test_an_answer_outside_the_form_is_none(text):
    assert verdict(text) is None


def test_a_row_that_the_engine_lost_is_none():
    assert read_document(failure_schema(), None, ScriptedEngine().tokenizer) is None


def test_a_schema_that_is_not_understood_is_an_error_and_not_a_pass():
    with pytest.raises(ValueError, match="`number`"):
        fits_schema({"type": "number"}, 1.0)
