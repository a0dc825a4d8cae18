"""The world model on real architectures with random weights: Qwen3 and Qwen3.5, choices and JSON."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from tests.engines.models import THINKING, build_qwen3, build_qwen35, build_tokenizer
from tests.prompts.examples import example_task
from tests.world_model.scripted import ShortPack, failure_schema
from wmrl_cli.engines.transformers_engine import TransformersEngine
from wmrl_cli.environment import Attempt
from wmrl_cli.errors import StageError
from wmrl_cli.maths.outcomes import Status
from wmrl_cli.prompts import get_pack
from wmrl_cli.prompts.standard import StandardPack
from wmrl_cli.world_model import WorldModel

SCRIPTS = ("import numpy as np\nprint(np.zeros(3))\n", None, "x = 1\n" * 20, "y = (")


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def attempts(scripts=SCRIPTS):
    return [Attempt(task=example_task(), script=script, seed=seed) for seed, script in enumerate(scripts)]


def engine_of(build):
    tokenizer = build_tokenizer(THINKING)
    return TransformersEngine(build(tokenizer), tokenizer)


def same(first, second):
    """Equal but for rounding in the last digits of probabilities."""
    assert first.status is second.status
    assert first.reward == pytest.approx(second.reward, abs=1e-5)
    assert first.observation == second.observation
    for one, other in zip(first.verdicts, second.verdicts, strict=True):
        assert one.fails == pytest.approx(other.fails, abs=1e-5)
        assert dataclasses.replace(one, fails=0.5) == dataclasses.replace(other, fails=0.5)


@pytest.mark.parametrize("build", [build_qwen3, build_qwen35], ids=["qwen3", "qwen3.5"])
@pytest.mark.parametrize("kind", ["choice", "json"])
def test_a_real_model_scores_every_script_and_the_batch_does_not_matter(build, kind):
    world_model = WorldModel(engine_of(build), ShortPack(kind))
    together = world_model.step(attempts())
    assert [o.status for o in together[1::2]] == [Status.MALFORMED, Status.SYNTAX_ERROR]
    for outcome, attempt in zip(together, attempts(), strict=True):
        assert 0.0 <= outcome.reward <= 1.0
        same(outcome, *world_model.step([attempt]))
    judged = together[0::2]
    assert all(len(outcome.verdicts) == 8 and not any(v.abstained for v in outcome.verdicts) for outcome in judged)
    assert len({outcome.verdicts for outcome in judged}) == len(judged)  # the script is read
    world_model.check_frozen()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ShortAnswers(StandardPack):
    """The standard pack with answers short enough for a model that never finds their end."""

    @property
    def experts(self):
        return tuple(
            expert if expert.schema is None else dataclasses.replace(expert, schema=failure_schema(), max_new_tokens=96)
            for expert in super().experts
        )


def test_the_standard_pack_runs_on_a_qwen35_and_says_where_a_script_fails():
    tokenizer = build_tokenizer(THINKING)
    model = build_qwen35(tokenizer, seed=4)  # with these weights experts expect failures
    model.config.max_position_embeddings = 16_384  # the prompt is long in a vocabulary of 400
    world_model = WorldModel(TransformersEngine(model, tokenizer), ShortAnswers(), packages=("numpy==1.26.4",))
    (outcome,) = world_model.step(attempts(SCRIPTS[:1]))
    assert outcome.status is not Status.LOST
    doubtful = [v for v in outcome.verdicts[:7] if v.fails >= 0.5]
    assert doubtful
    assert any(v.line is not None or v.error_class is not None or v.output is not None for v in doubtful)


def test_a_prompt_that_does_not_fit_the_context_is_lost_and_the_others_are_not():
    world_model = WorldModel(engine_of(build_qwen3), ShortPack())
    long, short = world_model.step(attempts(["x = 1\n" * 600, "x = 1\n"]))
    assert (long.status, long.reward) == (Status.LOST, None)
    assert short.status is not Status.LOST


def test_a_model_that_is_trained_under_the_world_models_feet_is_noticed():
    engine = engine_of(build_qwen3)
    world_model = WorldModel(engine, ShortPack())
    with torch.no_grad():
        next(engine.model.parameters()).add_(1e-3)
    with pytest.raises(StageError, match="changed"):
        world_model.check_frozen()


def test_the_compact_pack_asks_for_nothing_but_choices():
    tokenizer = build_tokenizer()
    world_model = WorldModel(TransformersEngine(build_qwen3(tokenizer), tokenizer), get_pack("compact"))
    outcomes = world_model.step(attempts(SCRIPTS[:3]))
    assert all(0.0 <= outcome.reward <= 1.0 for outcome in outcomes)
    assert all(verdict.error_class is not None for verdict in outcomes[0].verdicts[:7])
