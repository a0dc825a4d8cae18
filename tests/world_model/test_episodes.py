"""An agent that talks to the world model: what it reads, turn by turn, and what a lost script does to its episode."""

from __future__ import annotations

import pytest
import torch

from tests.engines.models import build_qwen3, build_tokenizer
from tests.prompts.examples import example_task
from tests.world_model.scripted import ScriptedEngine, ShortPack
from wmrl_cli.agent.episode import Seat, run_episodes
from wmrl_cli.engines.base import Sampling
from wmrl_cli.engines.transformers_engine import TransformersEngine
from wmrl_cli.maths.outcomes import Status
from wmrl_cli.prompts.base import DECILES, EXPERTS, QUALITY
from wmrl_cli.world_model import WorldModel

SAMPLING = Sampling(max_new_tokens=64)


class Agent(ScriptedEngine):
    """An agent that hands in the given replies, one a turn and the same on every seat."""

    context_tokens = 4096

    def __init__(self, *replies):
        super().__init__()
        self.left = list(replies)
        self.prompts = []

    def generate(self, prompts, sampling, *, seeds, schema=None):
        self.prompts.append([self.tokenizer.decode(prompt) for prompt in prompts])
        reply = self.left.pop(0)
        return [self._completion(reply) for _ in prompts]


class Patient(ShortPack):
    observation_tokens = 400


def seats(environment, count=2):
    return [
        Seat(task=example_task(), group_id="g", trajectory_id=f"g/{n}", seed=n, environment=environment)
        for n in range(count)
    ]


def play(agent, environment, turns):
    return run_episodes(seats(environment), engine=agent, pack=Patient(), turns=turns, sampling=SAMPLING, packages=())


def fenced(script):
    return f"I try this.\n```python\n{script}\n```\n"


@pytest.mark.parametrize("kind", ["choice", "json"])
def test_the_agent_reads_the_prediction_and_goes_on(kind):
    torch.set_num_threads(1)
    tokenizer = build_tokenizer()
    world_model = WorldModel(TransformersEngine(build_qwen3(tokenizer), tokenizer), ShortPack(kind))
    agent = Agent(fenced("x = 1"), "no code here", fenced("y = ("))
    for episode in play(agent, world_model, turns=3):
        assert not episode.lost
        first, second, third = episode.turns
        assert first.script == "x = 1\n"
        assert len(first.outcome.verdicts) == 8
        assert first.observation.startswith(f"Status: {first.outcome.status}")
        assert (second.outcome.status, third.outcome.status) == (Status.MALFORMED, Status.SYNTAX_ERROR)
        assert first.observation in tokenizer.decode(second.prompt_ids)
    assert all(first.observation in prompt for prompt in agent.prompts[1])


def test_equal_scripts_of_a_group_get_equal_predictions():
    tokenizer = build_tokenizer()
    world_model = WorldModel(TransformersEngine(build_qwen3(tokenizer), tokenizer), ShortPack("choice"))
    one, other = play(Agent(fenced("x = 1")), world_model, turns=1)
    assert one.turns[0].outcome.reward == pytest.approx(other.turns[0].outcome.reward, abs=1e-6)


def test_a_script_that_the_world_model_loses_ends_its_episode_without_a_reward():
    silent = dict.fromkeys(EXPERTS)
    world_model = WorldModel(ScriptedEngine(verdicts=silent), ShortPack("choice"))
    for episode in play(Agent(fenced("x = 1"), fenced("x = 2")), world_model, turns=2):
        assert episode.lost
        assert len(episode.turns) == 1
        assert episode.turns[0].outcome.reward is None
        assert episode.turns[0].observation is None


def test_the_scripts_own_words_reach_the_judge_and_the_judges_words_the_agent():
    tenths = [0.0] * len(DECILES)
    tenths[3] = 1.0
    engine = ScriptedEngine(verdicts={QUALITY: tenths})
    agent = Agent(fenced("x = 1  # mine"), fenced("x = 2"))
    play(agent, WorldModel(engine, ShortPack("choice")), turns=2)
    assert engine.chosen[:2] == ["demo\nx = 1  # mine\n\n"] * 2
    assert all("Leaderboard position: 0.35" in prompt for prompt in agent.prompts[1])
