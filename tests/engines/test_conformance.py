"""What every engine promises, checked on each: transformers on two architectures, and a server over HTTP."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.engines.models import build_qwen3, build_qwen35, build_tokenizer
from tests.engines.server import ModelServer, serve
from wmrl_cli.engines.base import Engine, Sampling
from wmrl_cli.engines.http_engine import HttpEngine
from wmrl_cli.engines.transformers_engine import TransformersEngine

torch.set_num_threads(1)
PROMPTS = [[5], list(range(40, 57)), [9, 9, 200, 31], list(range(300, 340)), [9, 9, 200, 31], [60, 61]]
SEEDS = [11, 12, 13, 14, 15, 16]
SCHEMA = {
    "type": "object",
    "properties": {
        "verdict": {"enum": ["pass", "fail"]},
        "line": {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 999}, {"type": "null"}]},
        "output": {"type": "string", "maxLength": 8},
    },
    "required": ["verdict", "line", "output"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", params=["qwen3", "qwen3.5", "http"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    tokenizer = build_tokenizer()
    if request.param == "qwen3.5":
        yield TransformersEngine(build_qwen35(tokenizer), tokenizer)
        return
    local = TransformersEngine(build_qwen3(tokenizer), tokenizer)
    if request.param == "qwen3":
        yield local
        return
    server = ModelServer(local)
    with serve(server) as url:
        yield HttpEngine(url, tokenizer, served=server.name, context_tokens=local.context_tokens, pause_s=0.01)


@pytest.fixture
def model(engine: Engine, request: pytest.FixtureRequest) -> Any:
    """The weights behind the engine, to compute what it should answer."""
    build = build_qwen35 if request.node.callspec.params["engine"] == "qwen3.5" else build_qwen3
    return build(engine.tokenizer)


def logp_after(model: Any, ids: list[int]) -> torch.Tensor:
    """Log-probabilities (T, V) of the token after each of `ids`, by one plain forward."""
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)


def test_a_row_depends_on_its_prompt_and_seed_alone(engine: Engine):
    sampling = Sampling(max_new_tokens=16)
    together = engine.generate(PROMPTS, sampling, seeds=SEEDS)
    backwards = engine.generate(PROMPTS[::-1], sampling, seeds=SEEDS[::-1])[::-1]
    alone = [engine.generate([prompt], sampling, seeds=[seed])[0] for prompt, seed in zip(PROMPTS, SEEDS, strict=True)]
    assert [c.ids for c in together] == [c.ids for c in backwards] == [c.ids for c in alone]
    for first, second in zip(together, alone, strict=True):
        np.testing.assert_allclose(first.logprobs, second.logprobs, atol=1e-4)


def test_another_seed_gives_another_reply(engine: Engine):
    replies = engine.generate([PROMPTS[1]] * 4, Sampling(max_new_tokens=16), seeds=[1, 2, 3, 4])
    assert len({reply.ids for reply in replies}) == 4


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.6, 0.8), (0.0, 1.0)])
def test_logprobs_are_those_of_temperature_one(engine: Engine, model: Any, temperature: float, top_p: float):
    sampling = Sampling(max_new_tokens=12, temperature=temperature, top_p=top_p)
    for prompt, reply in zip(PROMPTS, engine.generate(PROMPTS, sampling, seeds=SEEDS), strict=True):
        logp = logp_after(model, [*prompt, *reply.ids])[len(prompt) - 1 : -1]
        expected = logp.gather(-1, torch.tensor(reply.ids)[:, None])[:, 0]
        np.testing.assert_allclose(reply.logprobs, expected, atol=1e-4)
        if temperature == 0:
            assert list(reply.ids) == logp.argmax(-1).tolist()


def test_a_reply_stops_at_the_end_token_or_at_its_length(engine: Engine):
    end = engine.tokenizer.eos_token_id
    replies = engine.generate([[5, seed] for seed in range(60, 80)], Sampling(max_new_tokens=50), seeds=range(20))
    assert {reply.finish_reason for reply in replies} == {"stop", "length"}
    for reply in replies:
        assert end not in reply.ids[:-1]
        assert (reply.ids[-1] == end) == (reply.finish_reason == "stop")
        assert len(reply.ids) == 50 or reply.finish_reason == "stop"


def test_with_a_schema_replies_are_compact_json_that_fits_it(engine: Engine):
    for reply in engine.generate(PROMPTS, Sampling(max_new_tokens=60), seeds=SEEDS, schema=SCHEMA):
        text = engine.tokenizer.decode(reply.ids, skip_special_tokens=True)
        value = json.loads(text)
        assert list(value) == ["verdict", "line", "output"] and reply.finish_reason == "stop"
        assert value["verdict"] in ("pass", "fail")
        assert len(value["output"]) <= 8 or "\ufffd" in value["output"]  # one broken character may be read as several
        assert text.startswith('{"verdict":"') and ',"line":' in text


def test_json_cut_by_the_token_limit_says_length_and_does_not_crash(engine: Engine):
    reply = engine.generate([PROMPTS[1]], Sampling(max_new_tokens=4), seeds=[1], schema=SCHEMA)[0]
    assert reply.finish_reason == "length" and len(reply.ids) == 4


def test_choices_have_the_probabilities_of_a_plain_forward(engine: Engine, model: Any):
    suffixes = [[7, 8, 9], [7, 8, 50, 51, 52], [33]]
    choices = [[[100], [101], [102]], [[100], [101, 102], [101, 103, 104]], [[7], [8]]]
    answers = engine.choose(PROMPTS, suffixes, choices)
    for prompt, row in zip(PROMPTS, answers, strict=True):
        for suffix, options, answer in zip(suffixes, choices, row, strict=True):
            totals = []
            for option in options:
                logp = logp_after(model, [*prompt, *suffix, *option])
                start = len(prompt) + len(suffix) - 1
                totals.append(sum(logp[start + t, token].item() for t, token in enumerate(option)))
            np.testing.assert_allclose(answer, np.array(totals) - np.logaddexp.reduce(totals), atol=1e-4)
            assert math.isclose(np.exp(answer).sum(), 1.0, abs_tol=1e-9)


def test_what_does_not_fit_the_context_is_lost_and_the_rest_is_not(engine: Engine):
    long = [5] * engine.context_tokens
    replies = engine.generate([long, PROMPTS[0], long[:-2]], Sampling(max_new_tokens=8), seeds=[1, 2, 3])
    assert replies[0] is None and replies[1] is not None
    assert len(replies[2].ids) <= 2
    lost, kept = engine.choose([long, PROMPTS[0]], [[7]], [[[8], [9]]])
    assert np.isnan(lost[0]).all() and np.isfinite(kept[0]).all()


def test_no_rows_give_no_answers(engine: Engine):
    assert engine.generate([], Sampling(max_new_tokens=8), seeds=[]) == []
    assert engine.choose([], [[7]], [[[8], [9]]]) == []


def test_the_digest_is_stable(engine: Engine):
    assert engine.digest == engine.digest
