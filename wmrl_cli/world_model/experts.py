"""All experts on a batch of scripts.

First every verdict: the probabilities of the answers' deciding tokens, all questions behind one reading of the
shared part. Then, from the experts that speak JSON and expect a failure, the document that says where and how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from wmrl_cli.engines.base import Completion, Engine, Ids, Sampling
from wmrl_cli.environment import Verdict
from wmrl_cli.maths.outcomes import RewardLadder
from wmrl_cli.prompts.base import VERDICT_START, ExpertQuestion, PromptPack
from wmrl_cli.seeds import row_seed
from wmrl_cli.world_model.aggregate import worth_asking
from wmrl_cli.world_model.answers import read_choice, read_document, read_verdict, with_details

RETRY_TEMPERATURE = 0.7  # the first answer is greedy; asked the same way again, it would be the same

T = TypeVar("T")


def consult(
    engine: Engine, pack: PromptPack, ladder: RewardLadder, prefixes: Sequence[Ids], seeds: Sequence[int]
) -> list[tuple[Verdict, ...]]:
    """Every expert's verdict on each script, in the pack's order.

    Parameters
    ----------
    prefixes : token ids of what all experts read about a script, one a script.
    seeds : the scripts' own seeds, so that a verdict does not depend on the batch it was asked in.
    """
    suffixes = [encode(engine, pack.judge_suffix(engine.tokenizer, expert)) for expert in pack.experts]
    columns = _choose_verdicts(engine, pack.experts, suffixes, prefixes)
    for expert, suffix, column in zip(pack.experts, suffixes, columns, strict=True):
        if expert.schema is not None:
            rows = [row for row, verdict in enumerate(column) if verdict.abstained]
            written = _write(engine, expert, expert.schema, rows, prefixes, suffix, seeds, read_verdict)
            for row, verdict in written.items():
                column[row] = verdict
    wanted = [worth_asking(row, ladder) for row in zip(*columns, strict=True)]
    for expert, suffix, column in zip(pack.experts, suffixes, columns, strict=True):
        if expert.schema is not None:
            rows = [row for row, names in enumerate(wanted) if expert.name in names and column[row].error_class is None]
            failing = _schema_of_failure(expert.schema)
            accounts = _write(engine, expert, failing, rows, prefixes, suffix, seeds, _read_details)
            for row, document in accounts.items():
                column[row] = with_details(column[row], document)
    return list(zip(*columns, strict=True))


def encode(engine: Engine, text: str) -> list[int]:
    """Token ids of rendered text, which brings its own control tokens."""
    return list(engine.tokenizer.encode(text, add_special_tokens=False))


def deciding_tokens(answers: Sequence[list[int]]) -> list[list[int]]:
    """The answers' beginnings, as long as it takes to tell all of them apart.

    What follows is settled by then, so it must not count: an answer of several tokens would look less likely
    than one of a single token for its length alone.
    """
    for length in range(1, max(map(len, answers)) + 1):
        starts = [answer[:length] for answer in answers]
        if len(set(map(tuple, starts))) == len(starts):
            return starts
    raise ValueError("two answers have the same tokens")


def _choose_verdicts(
    engine: Engine, experts: Sequence[ExpertQuestion], suffixes: Sequence[Ids], prefixes: Sequence[Ids]
) -> list[list[Verdict]]:
    """One list of verdicts an expert, abstained where the engine could not compare the answers."""
    start = encode(engine, VERDICT_START)
    questions = [
        [*suffix, *start] if expert.kind == "json" else suffix for expert, suffix in zip(experts, suffixes, strict=True)
    ]
    choices = [deciding_tokens([encode(engine, word) for word in expert.verdicts]) for expert in experts]
    read = engine.choose(prefixes, questions, choices)
    return [
        [read_choice(expert, row[place]) or Verdict(expert=expert.name, abstained=True) for row in read]
        for place, expert in enumerate(experts)
    ]


def _write(
    engine: Engine,
    expert: ExpertQuestion,
    schema: Mapping[str, Any],
    rows: Sequence[int],
    prefixes: Sequence[Ids],
    suffix: Ids,
    seeds: Sequence[int],
    read: Callable[[ExpertQuestion, Completion | None, Any], T | None],
) -> dict[int, T]:
    """What `read` makes of the expert's JSON on each of `rows`: asked greedily, then once more with another seed
    where the answer cannot be used. Rows without a usable answer are left out."""
    answers: dict[int, T] = {}
    for attempt, temperature in enumerate((0.0, RETRY_TEMPERATURE)):
        left = [row for row in rows if row not in answers]
        if not left:
            break
        completions = engine.generate(
            [[*prefixes[row], *suffix] for row in left],
            Sampling(max_new_tokens=expert.max_new_tokens, temperature=temperature),
            seeds=[row_seed(seeds[row], expert.name, attempt) for row in left],
            schema=schema,
        )
        for row, completion in zip(left, completions, strict=True):
            if (answer := read(expert, completion, engine.tokenizer)) is not None:
                answers[row] = answer
    return answers


def _read_details(expert: ExpertQuestion, completion: Completion | None, tokenizer: Any) -> dict[str, Any] | None:
    return None if expert.schema is None else read_document(expert.schema, completion, tokenizer)


def _schema_of_failure(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema whose verdict can only be that the script fails."""
    properties = schema["properties"]
    verdict = {"enum": properties["verdict"]["enum"][1:]}
    return {**schema, "properties": {**properties, "verdict": verdict}}
