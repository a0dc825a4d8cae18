"""Environments that answer by arithmetic, tasks without data, and random models: a whole loop in seconds."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np

from tests.engines.models import build_qwen3, build_qwen35, build_tokenizer
from wmrl_cli.engines.transformers_engine import TransformersEngine
from wmrl_cli.environment import Outcome
from wmrl_cli.learner.config import LearnerConfig
from wmrl_cli.learner.learner import Learner
from wmrl_cli.maths.outcomes import RewardLadder, Status
from wmrl_cli.seeds import row_seed
from wmrl_cli.task import Column, Contract, DataFile, Leaderboard, Task
from wmrl_cli.training.experience import Effects

TOKENIZER = build_tokenizer()


def make_task(name: str) -> Task:
    column = Column(name="x", dtype="float", missing=0.0, distinct=9, examples=("1.0",))
    return Task(
        task_id=name,
        suite="test",
        split="train",
        category="tabular",
        metric="accuracy",
        higher_is_better=True,
        description=f"Predict y of {name}.",
        inventory=(DataFile(path="train.csv", kind="csv", bytes=10, rows=9, columns=(column,)),),
        contract=Contract(file="submission.csv", id_column="id", target_columns=("y",), rows=3, prediction="label"),
        public_dir="public",
        private_dir="private",
        leaderboards=(Leaderboard(name="reference", scores=(0.1, 0.9)),),
        digest=name,
        root=Path(),
    )


class World:
    """Scores that depend on the script's text and the task alone, so both scorers and every rerun agree.

    `noise` blurs the score; every `lose`-th script is lost; `seconds` is what a run is said to take.
    """

    def __init__(self, scorer: str, *, noise: float = 0.0, lose: int = 0, seconds: float | None = None) -> None:
        self.scorer, self.noise, self.lose, self.seconds = scorer, noise, lose, seconds

    def check_frozen(self) -> None: ...

    def step(self, attempts):
        return [self._one(attempt) for attempt in attempts]

    def _one(self, attempt):
        draw = row_seed(0, attempt.task.task_id, attempt.script)
        if self.lose and draw % self.lose == 0:
            return Outcome(status=Status.LOST, reward=None, detail="lost on purpose")
        q = float(np.clip((draw % 1000) / 999 + self.noise * np.sin(draw % 777), 0, 1))
        if q < 0.3:
            return Outcome(status=Status.RUNTIME_ERROR, reward=0.1, wall_s=self.seconds, observation="ValueError")
        reward = RewardLadder().reward(Status.VALID, q)
        return Outcome(status=Status.VALID, reward=reward, q=q, wall_s=self.seconds, observation="fine")


class Pack:
    """The words that a random model is given; any reply counts as a script, or there would be none."""

    name, turns, max_new_tokens, observation_tokens, experts = "test", 1, 12, 16, ()

    def opening(self, task, packages):
        return [{"role": "user", "content": task.description}]

    def feedback(self, observation):
        return observation


def make_learner(kind: str = "qwen3", **settings) -> Learner:
    model = {"qwen3": build_qwen3, "qwen3.5": build_qwen35}[kind](TOKENIZER)
    reference = copy.deepcopy(model)
    return Learner(model, reference, TOKENIZER, LearnerConfig(**{"learning_rate": 1e-3, **settings}))


def make_effects(learner: Learner, *, world_model=None, sandbox=None) -> Effects:
    return Effects(
        engine=TransformersEngine(learner.model, TOKENIZER),
        pack=Pack(),
        sandbox=sandbox or World("sandbox", seconds=2.0),
        world_model=world_model or World("world_model", noise=0.3),
    )
