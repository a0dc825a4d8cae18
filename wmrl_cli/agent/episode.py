"""Episodes of an agent with an environment, token in, token out: what was sampled is kept and never tokenised again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal, TypeVar

from wmrl_cli.agent.parsing import extract_script
from wmrl_cli.engines.base import Engine, Sampling
from wmrl_cli.engines.chat import cut, feedback_ids, opening_ids
from wmrl_cli.environment import Attempt, Environment, Outcome
from wmrl_cli.maths.outcomes import Status
from wmrl_cli.prompts.base import PromptPack
from wmrl_cli.seeds import row_seed
from wmrl_cli.task import Task

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Seat:
    """One trajectory to be made. Without an environment it is one reply that nobody scores."""

    task: Task
    group_id: str
    trajectory_id: str
    seed: int
    environment: Environment | None


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One reply and what came of it."""

    prompt_ids: tuple[int, ...]  # the tokens added before this reply: the opening, later what the environment said
    response_ids: tuple[int, ...]  # as sampled
    logprobs: tuple[float, ...]  # of the sampler, at temperature 1 and top_p 1; as long as response_ids
    finish_reason: Literal["stop", "length"]
    text: str  # the reply without special tokens
    script: str | None  # null where the reply holds no closed code block
    outcome: Outcome | None  # null where the seat has no environment
    observation: str | None  # what the agent is told, cut to its budget; null without an outcome and where it was lost
    seconds: float  # this reply's share of the batch's generation time


@dataclass(kw_only=True)
class Episode:
    """The turns of one seat. `lost`: our failure ended it, not the agent's; it has no reward then."""

    seat: Seat
    turns: list[Turn] = field(default_factory=list)
    lost: bool = False


def run_episodes(
    seats: Sequence[Seat],
    *,
    engine: Engine,
    pack: PromptPack,
    turns: int,
    sampling: Sampling,
    packages: Sequence[str],
) -> list[Episode]:
    """One episode a seat, in order, of at most `turns` turns each.

    Replies are sampled for all seats at once, scripts are scored by all environments at once (each in a thread
    of its own). A reply without a script is scored too, as `malformed`, and the episode goes on. An episode
    ends early where its outcome or reply is lost, or where the model's context has no room for a further turn.
    A turn's random numbers come from the seat's seed and the turn, so batching changes nothing.
    """
    episodes = [Episode(seat=seat) for seat in seats]
    histories = _openings(seats, engine, pack, packages)
    added = [tuple(history) for history in histories]
    open_rows = list(range(len(seats)))
    for turn in range(1, turns + 1):
        open_rows = [row for row in open_rows if turn == 1 or len(histories[row]) < engine.context_tokens]
        drafts = _replies(open_rows, turn, episodes, histories, added, engine, sampling)
        _score(drafts, turn, episodes, engine, pack)
        open_rows = [row for row in drafts if episodes[row].turns[-1].observation is not None]
        if turn < turns:
            for row in open_rows:
                last = episodes[row].turns[-1]
                observation = pack.feedback(last.observation or "")
                added[row] = tuple(feedback_ids(engine.tokenizer, last.response_ids, observation))
                histories[row] += [*last.response_ids, *added[row]]
    return episodes


def _openings(seats: Sequence[Seat], engine: Engine, pack: PromptPack, packages: Sequence[str]) -> list[list[int]]:
    """The first prompt of each seat; seats of one task share one rendering."""
    rendered: dict[int, list[int]] = {}
    for seat in seats:
        if id(seat.task) not in rendered:
            rendered[id(seat.task)] = opening_ids(engine.tokenizer, pack.opening(seat.task, packages))
    return [list(rendered[id(seat.task)]) for seat in seats]


def _replies(
    rows: Sequence[int],
    turn: int,
    episodes: Sequence[Episode],
    histories: Sequence[list[int]],
    added: Sequence[tuple[int, ...]],
    engine: Engine,
    sampling: Sampling,
) -> dict[int, Turn]:
    """One reply for each of `rows`, not yet scored; rows that the engine lost are marked and left out."""
    started = time.perf_counter()
    seeds = [row_seed(episodes[row].seat.seed, "reply", turn) for row in rows]
    completions = engine.generate([histories[row] for row in rows], sampling, seeds=seeds) if rows else []
    seconds = (time.perf_counter() - started) / max(1, len(rows))
    drafts = {}
    for row, completion in zip(rows, completions, strict=True):
        if completion is None:
            episodes[row].lost = True
            continue
        text = engine.tokenizer.decode(completion.ids, skip_special_tokens=True)
        drafts[row] = Turn(
            prompt_ids=added[row],
            response_ids=completion.ids,
            logprobs=completion.logprobs,
            finish_reason=completion.finish_reason,
            text=text,
            script=extract_script(text, completion.finish_reason),
            outcome=None,
            observation=None,
            seconds=seconds,
        )
    return drafts


def _score(drafts: dict[int, Turn], turn: int, episodes: Sequence[Episode], engine: Engine, pack: PromptPack) -> None:
    """Appends each of `drafts` to its episode, with the outcome and observation that its environment gives."""
    groups: dict[int, list[int]] = {}
    environments: dict[int, Environment] = {}
    for row in drafts:
        if (environment := episodes[row].seat.environment) is not None:
            environments[id(environment)] = environment
            groups.setdefault(id(environment), []).append(row)

    def step(key: int) -> list[Outcome]:
        attempts = [
            Attempt(
                task=episodes[row].seat.task,
                script=drafts[row].script,
                seed=row_seed(episodes[row].seat.seed, "attempt", turn),
            )
            for row in groups[key]
        ]
        return environments[key].step(attempts)

    outcomes: dict[int, Outcome] = {}
    for key, results in _at_once({key: partial(step, key) for key in groups}).items():
        outcomes.update(zip(groups[key], results, strict=True))
    for row, draft in drafts.items():
        outcome = outcomes.get(row)
        lost = outcome is not None and outcome.status is Status.LOST
        told = None if outcome is None or lost else cut(engine.tokenizer, outcome.observation, pack.observation_tokens)
        episodes[row].turns.append(replace(draft, outcome=outcome, observation=told))
        episodes[row].lost |= lost


def _at_once(calls: Mapping[int, Callable[[], T]]) -> dict[int, T]:
    """What each call returns, all running at once; the first that raised raises here.

    Daemon threads, so that an interrupt ends the program without waiting for a script that still runs.
    """
    if len(calls) == 1:
        return {key: call() for key, call in calls.items()}
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def work(key: int, call: Callable[[], T]) -> None:
        try:
            results[key] = call()
        except BaseException as error:  # raised again below, in the caller's thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=item, daemon=True) for item in calls.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
