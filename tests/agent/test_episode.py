"""Episodes with a real tokenizer; replies come from a list, or from tiny random models."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engines.models import CHATML, THINKING, build_qwen3, build_qwen35, build_tokenizer
from wmrl_cli.agent.episode import Seat, run_episodes
from wmrl_cli.engines.base import Completion, Ids, Sampling
from wmrl_cli.engines.chat import end_of_turn, opening_ids
from wmrl_cli.engines.transformers_engine import TransformersEngine
from wmrl_cli.environment import Attempt, Outcome
from wmrl_cli.errors import UnavailableError
from wmrl_cli.maths.outcomes import Status
from wmrl_cli.seeds import row_seed
from wmrl_cli.task import Contract, Task

torch.set_num_threads(1)
SAMPLING = Sampling(max_new_tokens=64)
GOOD = "```python\nprint('hello')\n```"


def make_task(task_id: str = "wine") -> Task:
    contract = Contract(file="submission.csv", id_column="id", target_columns=("y",), rows=3, prediction="label")
    return Task(
        task_id=task_id, suite="offline", split="train", category="tabular", metric="accuracy", higher_is_better=True,
        description=f"Predict y of {task_id}.", inventory=(), contract=contract, public_dir="public", private_dir="private",
        leaderboards=(), root=Path(),
    )  # fmt: skip


class ShortPack:
    """A pack of few words."""

    name, turns, max_new_tokens, observation_tokens, experts = "short", 2, 64, 40, ()

    def opening(self, task: Task, packages: Sequence[str]) -> list[dict[str, str]]:
        return [{"role": "user", "content": f"{task.description} Packages: {', '.join(packages)}"}]

    def feedback(self, observation: str) -> str:
        return f"{observation}\nTry again."


class ListEngine:
    """An engine that answers from a list of replies for each turn, and remembers what it was asked."""

    context_tokens = 100_000

    def __init__(self, tokenizer: Any, *turns: Sequence[str | None], cut_off: bool = False) -> None:
        self.tokenizer, self.turns, self.cut_off = tokenizer, list(turns), cut_off
        self.prompts: list[list[list[int]]] = []
        self.seeds: list[list[int]] = []

    def generate(
        self,
        prompts: Sequence[Ids],
        sampling: Sampling,
        *,
        seeds: Sequence[int],
        schema: Mapping[str, Any] | None = None,
    ) -> list[Completion | None]:
        self.prompts.append([list(prompt) for prompt in prompts])
        self.seeds.append(list(seeds))
        return [self._complete(reply) for reply in self.turns[len(self.prompts) - 1]]

    def _complete(self, reply: str | None) -> Completion | None:
        if reply is None:
            return None
        ids = self.tokenizer.encode(reply, add_special_tokens=False)
        if not self.cut_off:
            ids.append(end_of_turn(self.tokenizer))
        reason = "length" if self.cut_off else "stop"
        return Completion(ids=tuple(ids), logprobs=(-0.5,) * len(ids), finish_reason=reason)


class ListEnvironment:
    """An environment that gives each script the status that stands in it."""

    scorer = "sandbox"

    def __init__(self, together: threading.Barrier | None = None, error: Exception | None = None) -> None:
        self.together, self.error = together, error
        self.attempts: list[Attempt] = []
        self.threads: set[int] = set()

    def step(self, attempts: Sequence[Attempt]) -> list[Outcome]:
        if self.together:
            self.together.wait()
        if self.error:
            raise self.error
        self.threads.add(threading.get_ident())
        self.attempts += attempts
        return [self._outcome(attempt.script) for attempt in attempts]

    def _outcome(self, script: str | None) -> Outcome:
        if script is None:
            return Outcome(status=Status.MALFORMED, reward=0.0, observation="Status: malformed")
        status = Status.LOST if "lost" in script else Status.RUNTIME_ERROR if "error" in script else Status.VALID
        reward = {Status.LOST: None, Status.RUNTIME_ERROR: 0.1, Status.VALID: 0.75}[status]
        return Outcome(status=status, reward=reward, observation=f"Status: {status}")


def seats(count: int, environment: Any, task: Task | None = None) -> list[Seat]:
    task = task or make_task()
    return [
        Seat(task=task, group_id="g", trajectory_id=f"t{k}", seed=100 + k, environment=environment)
        for k in range(count)
    ]


def run(some: Sequence[Seat], engine: Any, turns: int = 2) -> list[Any]:
    return run_episodes(some, engine=engine, pack=ShortPack(), turns=turns, sampling=SAMPLING, packages=["numpy==2.1"])


@pytest.mark.parametrize("template", [CHATML, THINKING])
@pytest.mark.parametrize("turns", [1, 2, 4])
def test_the_tokens_of_all_turns_are_the_conversation_as_the_model_saw_it(template: str, turns: int):
    tokenizer = build_tokenizer(template)
    engine = ListEngine(tokenizer, *[[GOOD]] * turns)
    (episode,) = run(seats(1, ListEnvironment()), engine, turns)
    assert len(episode.turns) == turns and not episode.lost
    conversation = ShortPack().opening(make_task(), ["numpy==2.1"])
    joined: list[int] = []
    for turn, seen in zip(episode.turns, engine.prompts, strict=True):
        joined += turn.prompt_ids
        assert seen == [joined]
        full = tokenizer.apply_chat_template(
            conversation, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        if template is THINKING:  # history keeps the empty thinking that each reply was started with
            full = full.replace("assistant\n```", "assistant\n<think>\n\n</think>\n\n```")
        assert joined == tokenizer.encode(full, add_special_tokens=False)
        joined += turn.response_ids
        conversation += [
            {"role": "assistant", "content": GOOD},
            {"role": "user", "content": ShortPack().feedback("Status: valid")},
        ]


def test_a_turn_holds_the_reply_and_what_came_of_it():
    environment = ListEnvironment()
    (episode,) = run(seats(1, environment), ListEngine(build_tokenizer(), [GOOD], ["no idea"]))
    first, second = episode.turns
    assert (first.text, first.script, first.finish_reason) == (GOOD, "print('hello')\n", "stop")
    assert len(first.logprobs) == len(first.response_ids)
    assert (first.outcome.reward, first.observation) == (0.75, "Status: valid")
    assert second.script is None and second.outcome.status is Status.MALFORMED
    assert [attempt.script for attempt in environment.attempts] == ["print('hello')\n", None]
    assert first.seconds > 0


def test_a_reply_that_was_cut_is_malformed_and_the_episode_goes_on():
    engine = ListEngine(build_tokenizer(), ["```python\nprint("], [GOOD], cut_off=True)
    (episode,) = run(seats(1, ListEnvironment()), engine)
    first, second = episode.turns
    assert first.outcome.status is Status.MALFORMED and first.finish_reason == "length"
    assert second.prompt_ids[0] == end_of_turn(engine.tokenizer)  # the cut turn is ended for it
    assert "Status: malformed\nTry again." in engine.tokenizer.decode(second.prompt_ids)


def test_a_lost_outcome_ends_the_episode_and_the_others_go_on():
    engine = ListEngine(build_tokenizer(), ["```python\nlost\n```", GOOD], [GOOD])
    lost, kept = run(seats(2, ListEnvironment()), engine)
    assert lost.lost and len(lost.turns) == 1 and lost.turns[0].outcome.reward is None
    assert lost.turns[0].observation is None
    assert not kept.lost and len(kept.turns) == 2
    assert len(engine.prompts[1]) == 1


def test_a_lost_reply_ends_the_episode_and_keeps_its_earlier_turns():
    engine = ListEngine(build_tokenizer(), [GOOD, None, GOOD], [None, GOOD])
    first, second, third = run(seats(3, ListEnvironment()), engine)
    assert (first.lost, len(first.turns)) == (True, 1)
    assert (second.lost, len(second.turns)) == (True, 0)
    assert (third.lost, len(third.turns)) == (False, 2)


def test_without_an_environment_one_reply_is_made_and_nobody_scores_it():
    engine = ListEngine(build_tokenizer(), [GOOD, GOOD], [GOOD])
    alone, scored = run([*seats(1, None), *seats(1, ListEnvironment())], engine)
    assert len(alone.turns) == 1 and alone.turns[0].outcome is None and alone.turns[0].observation is None
    assert not alone.lost and len(scored.turns) == 2


def test_environments_are_stepped_at_the_same_time_and_each_once_a_turn():
    together = threading.Barrier(2, timeout=60)  # breaks where one is stepped after the other
    first, second = ListEnvironment(together), ListEnvironment(together)
    engine = ListEngine(build_tokenizer(), [GOOD] * 4)
    episodes = run([*seats(2, first), *seats(2, second)], engine, turns=1)
    assert len(first.threads) == len(second.threads) == 1 and first.threads != second.threads
    assert [episode.turns[0].outcome.reward for episode in episodes] == [0.75] * 4


def test_an_environment_that_is_down_stops_the_run():
    broken = ListEnvironment(error=UnavailableError("the sandbox is gone"))
    engine = ListEngine(build_tokenizer(), [GOOD, GOOD])
    with pytest.raises(UnavailableError, match="gone"):
        run([*seats(1, broken), *seats(1, ListEnvironment())], engine)


def test_seeds_belong_to_the_seat_and_the_turn():
    engine, environment = ListEngine(build_tokenizer(), [GOOD, GOOD], [GOOD, GOOD]), ListEnvironment()
    run(seats(2, environment), engine)
    assert engine.seeds == [[row_seed(seed, "reply", turn) for seed in (100, 101)] for turn in (1, 2)]
    assert len({attempt.seed for attempt in environment.attempts}) == 4


def test_an_episode_whose_context_is_full_ends_with_what_it_has():
    engine = ListEngine(build_tokenizer(), [GOOD, GOOD])
    engine.context_tokens = len(opening_ids(engine.tokenizer, ShortPack().opening(make_task(), ["numpy==2.1"]))) + 5
    episodes = run(seats(2, ListEnvironment()), engine, turns=3)
    assert [(len(episode.turns), episode.lost) for episode in episodes] == [(1, False)] * 2


def test_a_long_observation_is_cut_before_the_agent_reads_it():
    class Talkative(ListEnvironment):
        def _outcome(self, script: str | None) -> Outcome:
            return Outcome(status=Status.VALID, reward=0.6, observation="start\n" + "blah " * 500 + "KeyError: 'x'")

    engine = ListEngine(build_tokenizer(), [GOOD], [GOOD])
    (episode,) = run(seats(1, Talkative()), engine)
    told = episode.turns[0].observation
    assert told.startswith("start") and told.endswith("KeyError: 'x'")
    assert len(engine.tokenizer.encode(told, add_special_tokens=False)) <= ShortPack.observation_tokens
    assert told in engine.tokenizer.decode(episode.turns[1].prompt_ids)


@pytest.mark.parametrize("build", [build_qwen3, build_qwen35])
def test_episodes_of_a_real_model_do_not_depend_on_who_else_is_seated(build: Any):
    tokenizer = build_tokenizer(THINKING)
    model = build(tokenizer)
    engine = TransformersEngine(model, tokenizer)
    some = [*seats(3, ListEnvironment(), make_task("wine")), *seats(2, ListEnvironment(), make_task("iris"))]
    together, alone = run(some, engine), run(some[:1], engine)
    assert [turn.response_ids for turn in together[0].turns] == [turn.response_ids for turn in alone[0].turns]
    for episode in together:
        ids, masked = [], []
        for turn in episode.turns:
            ids += [*turn.prompt_ids, *turn.response_ids]
            masked += [False] * len(turn.prompt_ids) + [True] * len(turn.response_ids)
        with torch.no_grad():
            logp = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(-1)
        taken = logp[:-1].gather(-1, torch.tensor(ids[1:])[:, None])[:, 0][torch.tensor(masked[1:])]
        sampled = [value for turn in episode.turns for value in turn.logprobs]
        np.testing.assert_allclose(sampled, taken, atol=1e-3)
