"""An engine that says what a test tells it to say, and remembers what it was asked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from tests.engines.models import build_tokenizer
from wmrl_cli.engines.base import Completion, Ids, Sampling
from wmrl_cli.prompts.base import DECILES, EXPERTS, QUALITY, VERDICT_START, ExpertQuestion

tokenizer_of_tests = cache(build_tokenizer)


def failure_schema() -> dict[str, Any]:
    properties = {
        "verdict": {"enum": ["pass", "fail"]},
        "line": {"type": "integer", "minimum": 0, "maximum": 99},
        "error_class": {"type": "string", "maxLength": 12},
        "output": {"type": "string", "maxLength": 20},
    }
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


class ShortPack:
    """Few words, so that a random model of a thousand positions can read them; JSON experts or choices."""

    name, turns, max_new_tokens, observation_tokens = "short", 1, 32, 64

    def __init__(self, kind: str = "json") -> None:
        self.experts = tuple(
            ExpertQuestion(name=name, kind="choice", choices=DECILES)
            if name == QUALITY
            else ExpertQuestion(name=name, kind="json", schema=failure_schema(), max_new_tokens=96)
            if kind == "json"
            else ExpertQuestion(name=name, kind="choice", choices=("pass", "KeyError", "timeout"))
            for name in EXPERTS
        )

    def opening(self, task: Any, packages: Sequence[str]) -> list[dict[str, str]]:
        return [{"role": "user", "content": task.task_id}]

    def feedback(self, observation: str) -> str:
        return observation

    def judge_prefix(self, tokenizer: Any, task: Any, script: str, packages: Sequence[str]) -> str:
        return f"{task.task_id}\n{script}\n"

    def judge_suffix(self, tokenizer: Any, expert: ExpertQuestion) -> str:
        return f"<|im_start|>{expert.name}?"


Probabilities = Mapping[str, Sequence[float] | None]


@dataclass
class ScriptedEngine:
    """`verdicts`: the probabilities of each expert's answers (None: it cannot compare them; not named: passes).

    `replies`: what each expert writes, one text a question in the order of asking; a text that ends with
    `...` was cut by its length, None is a row that the engine lost.
    """

    verdicts: Probabilities = field(default_factory=dict)
    replies: dict[str, list[str | None]] = field(default_factory=dict)
    logprob: float = 0.0
    digest: str = "weights"
    tokenizer: Any = field(default_factory=lambda: tokenizer_of_tests())
    chosen: list[str] = field(default_factory=list)  # prefixes that verdicts were asked about
    written: list[tuple[str, int, float]] = field(default_factory=list)  # (expert, seed, temperature) of each reply
    schemas: list[Mapping[str, Any] | None] = field(default_factory=list)

    def choose(
        self, prefixes: Sequence[Ids], suffixes: Sequence[Ids], choices: Sequence[Sequence[Ids]]
    ) -> list[list[np.ndarray]]:
        self.chosen += [self.tokenizer.decode(prefix) for prefix in prefixes]
        return [[self._logprobs(s, len(c)) for s, c in zip(suffixes, choices, strict=True)] for _ in prefixes]

    def _logprobs(self, suffix: Ids, count: int) -> np.ndarray:
        text = self.tokenizer.decode(suffix)
        name = self._name(text)
        assert text.endswith(VERDICT_START) or count > 2, "a JSON verdict is compared where the answer begins"
        shares = self.verdicts.get(name, [1.0] + [0.0] * (count - 1))
        with np.errstate(divide="ignore"):
            return np.full(count, np.nan) if shares is None else np.log(np.array(shares))

    def generate(
        self,
        prompts: Sequence[Ids],
        sampling: Sampling,
        *,
        seeds: Sequence[int],
        schema: Mapping[str, Any] | None = None,
    ) -> list[Completion | None]:
        self.schemas.append(schema)
        completions = []
        for prompt, seed in zip(prompts, seeds, strict=True):
            name = self._name(self.tokenizer.decode(prompt))
            self.written.append((name, seed, sampling.temperature))
            completions.append(self._completion(self.replies[name].pop(0)))
        return completions

    def _completion(self, text: str | None) -> Completion | None:
        if text is None:
            return None
        cut = text.endswith("...")
        ids = tuple(self.tokenizer.encode(text.removesuffix("..."), add_special_tokens=False))
        ids = ids if cut else (*ids, self.tokenizer.eos_token_id)
        return Completion(ids=ids, logprobs=(self.logprob,) * len(ids), finish_reason="length" if cut else "stop")

    def _name(self, text: str) -> str:
        return text.rpartition("<|im_start|>")[2].partition("?")[0]

    def load_weights(self, folder: Any) -> None:
        self.digest = str(folder)


def log(*shares: float) -> np.ndarray:
    return np.array([math.log(share) if share else -math.inf for share in shares])
