"""What a prompt pack offers: everything that is said to a model, to the agent and to the world model's experts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from wmrl_cli.task import Task

EXPERTS = ("dependencies", "api", "data", "shapes", "compute", "runtime", "submission", "quality")
QUALITY = "quality"
DECILES = tuple("0123456789")  # quality's answers: the tenth of the leaderboard that the script reaches, 9 = best
VERDICT_START = '{"verdict":"'  # how every JSON answer begins

Message = dict[str, str]  # {"role": ..., "content": ...}


@dataclass(frozen=True, kw_only=True)
class ExpertQuestion:
    """How one expert is asked and what it may answer.

    `choice`: one of `choices` is the whole answer; the first means that the script passes, the others name
    the failure (an exception class, or a status such as `timeout`); quality always chooses among DECILES.
    `json`: a document that `schema` allows, which starts with VERDICT_START and one of two verdicts, the first
    of which means that the script passes, and may go on with `line`, `error_class` and `output`.
    """

    name: str
    kind: Literal["choice", "json"]
    choices: tuple[str, ...] = ()
    schema: Mapping[str, Any] | None = None
    max_new_tokens: int = 1

    def __post_init__(self) -> None:
        if (self.kind == "json") != (self.schema is not None) or (self.kind == "choice") != (len(self.choices) > 1):
            raise ValueError(f"expert `{self.name}` needs choices or a schema, as its kind says: got {self}")
        if self.name == QUALITY and self.choices != DECILES:
            raise ValueError(f"the quality expert chooses among {DECILES}: got {self}")

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The answers that can be told apart by one token each; the first means that the script passes."""
        return self.choices if self.schema is None else tuple(self.schema["properties"]["verdict"]["enum"])


class Renderer(Protocol):
    """The part of a Hugging Face tokenizer that a pack needs."""

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = ...) -> str: ...

    def apply_chat_template(self, conversation: list[dict[str, str]], **options: Any) -> Any: ...


class PromptPack(Protocol):
    """All wording and all budgets for one family of models."""

    @property
    def name(self) -> str: ...

    @property
    def turns(self) -> int:
        """Default number of turns of an episode."""
        ...

    @property
    def max_new_tokens(self) -> int:
        """Longest reply of the agent in one turn, in tokens."""
        ...

    @property
    def observation_tokens(self) -> int:
        """Longest observation that is shown to the agent, in tokens."""
        ...

    @property
    def experts(self) -> tuple[ExpertQuestion, ...]:
        """The eight questions, in the order of EXPERTS."""
        ...

    def within(self, *, wall_s: float, memory_gib: float) -> PromptPack:
        """The same pack for a sandbox with these limits; a pack that does not tell them is the same."""
        ...

    def opening(self, task: Task, packages: Sequence[str]) -> list[Message]:
        """The messages that start an episode; `packages` are the sandbox's, as `name==version`."""
        ...

    def feedback(self, observation: str) -> str:
        """Content of the user message that tells the agent what came of its script."""
        ...

    def judge_prefix(self, tokenizer: Renderer, task: Task, script: str, packages: Sequence[str]) -> str:
        """Rendered text of what all experts read about one script."""
        ...

    def judge_suffix(self, tokenizer: Renderer, expert: ExpertQuestion) -> str:
        """Rendered text of one expert's question and of the start of its answer; the same for every script."""
        ...
