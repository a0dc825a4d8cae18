"""Training sequences: a task, a script, and the experts' questions behind it, as tokens.

The questions stand behind the script side by side: each sees the conversation and itself, none sees another, and
all start at the same position. So training shows the model exactly what `Engine.choose` will show it.

Letters: B sequences of a batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor

from scripts.tiny.grammar import write_script
from scripts.tiny.imagined import imagine
from wmrl_cli.maths.outcomes import Status
from wmrl_cli.prompts.base import QUALITY
from wmrl_cli.prompts.compact import PASSES, CompactPack, as_reply, verdict_of
from wmrl_cli.world_model.aggregate import GATES

IGNORED = -100
_CONVERSATION = 0  # block number of the tokens that every question sees


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """A script that was executed, and how that ended."""

    task_id: str
    header: str
    script: str
    status: str
    error_class: str | None
    q: float | None
    by_agent: bool  # written by the agent: teaches the world model, is not imitated
    raw_metric: float | None = None
    cpu_s: float | None = None


@dataclass(frozen=True)
class Tokens:
    """Token ids, their positions and blocks, and what each should predict next (IGNORED: nothing)."""

    ids: list[int]
    positions: list[int]
    blocks: list[int]  # 0 = conversation, n = the n-th question
    script_targets: list[int]
    verdict_targets: list[int]


def answers(example: Labelled) -> dict[str, str]:
    """What each expert should have said, as far as execution showed it; empty where the experts are never asked.

    The expert that owns the failure names it, and those that watch the same gate or an earlier one say that the
    script passes. A script that failed at one gate shows nothing about the later ones, nor about its quality.
    """
    status = Status(example.status)
    if status in (Status.LOST, Status.MALFORMED, Status.SYNTAX_ERROR):
        return {}
    verdicts: dict[str, str] = {}
    owner = verdict_of(status, example.error_class)
    for gate in GATES:
        verdicts |= dict.fromkeys(gate, PASSES)
        if owner and owner[0] in gate:
            return {**verdicts, owner[0]: owner[1]}
    assert status is Status.VALID and example.q is not None
    return {**verdicts, QUALITY: str(min(9, int(10 * example.q)))}


class Encoder:
    """Turns scripts into sequences with one tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        pack = CompactPack()
        self._questions = {expert.name: self._ids(pack.judge_suffix(tokenizer, expert)) for expert in pack.experts}
        self._choices = {
            expert.name: {choice: self._one_id(choice) for choice in expert.choices} for expert in pack.experts
        }
        self._turn_end = self._one_id("<|im_end|>")
        self.pad = self._one_id("<|endoftext|>")

    def encode(self, header: str, script: str, verdicts: Mapping[str, str], *, imitate: bool) -> Tokens:
        prompt = self.prompt(header)
        reply = [*self._ids(as_reply(script)), self._turn_end]
        ids = prompt + reply
        script_targets = [IGNORED] * (len(prompt) - 1) + (reply if imitate else [IGNORED] * len(reply)) + [IGNORED]
        verdict_targets = [IGNORED] * len(ids)
        if not verdicts:
            return Tokens(ids, list(range(len(ids))), [_CONVERSATION] * len(ids), script_targets, verdict_targets)
        ids = ids + self._ids("\n")  # the chat template ends a turn with it
        start = len(ids)
        positions, blocks = list(range(start)), [_CONVERSATION] * start
        verdict_targets.append(IGNORED)
        for number, (expert, choice) in enumerate(verdicts.items(), 1):
            question = self._questions[expert]
            ids = ids + question
            positions += range(start, start + len(question))
            blocks += [number] * len(question)
            verdict_targets += [IGNORED] * (len(question) - 1) + [self._choices[expert][choice]]
        script_targets += [IGNORED] * (len(ids) - len(script_targets))
        return Tokens(ids, positions, blocks, script_targets, verdict_targets)

    def example(self, example: Labelled) -> Tokens:
        return self.encode(example.header, example.script, answers(example), imitate=not example.by_agent)

    def imagined(self, random: Random) -> Tokens:
        """A script for a task that does not exist, without labels."""
        from wmrl_cli.prompts.compact import header

        facts = imagine(random)
        return self.encode(header(facts), write_script(facts, random), {}, imitate=True)

    def prompt(self, header: str) -> list[int]:
        """The ids that start an episode, as the agent's prompt pack renders them."""
        messages = [{"role": "user", "content": header}]
        return self._ids(self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def _one_id(self, text: str) -> int:
        (token,) = self._ids(text)
        return token


@dataclass(frozen=True)
class Batch:
    """Padded on the right. `visible` (B, 1, T, T) is None where plain causal attention is meant."""

    ids: Tensor
    positions: Tensor
    visible: Tensor | None
    script_targets: Tensor
    verdict_targets: Tensor


def collate(sequences: Sequence[Tokens], pad: int) -> Batch:
    length = max(len(sequence.ids) for sequence in sequences)

    def padded(name: str, fill: int) -> Tensor:
        return torch.tensor([getattr(s, name) + [fill] * (length - len(s.ids)) for s in sequences])

    blocks = padded("blocks", -1)
    visible = None
    if bool((blocks > _CONVERSATION).any()):
        key, query = blocks[:, None, None, :], blocks[:, None, :, None]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        visible = causal & ((key == _CONVERSATION) | (key == query))
    return Batch(
        ids=padded("ids", pad),
        positions=padded("positions", 0),
        visible=visible,
        script_targets=padded("script_targets", IGNORED),
        verdict_targets=padded("verdict_targets", IGNORED),
    )
