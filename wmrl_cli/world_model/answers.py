"""What an expert answered, read as a verdict; an answer that cannot be used is None, never a guess."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from wmrl_cli.engines.base import Completion, Floats, Tokenizer
from wmrl_cli.environment import Verdict
from wmrl_cli.prompts.base import QUALITY, ExpertQuestion


def read_choice(expert: ExpertQuestion, logprobs: Floats | None) -> Verdict | None:
    """The verdict in the log-probabilities of `expert.verdicts`, shape (verdicts,); None where they are missing.

    A failure's probability is all that does not pass. Quality is the mean of the tenths' centres. A `choice`
    expert also names the likeliest failure; a `json` expert has to be asked for it.
    """
    if logprobs is None or len(logprobs) != len(expert.verdicts) or np.isnan(logprobs).any():
        return None
    weights = np.exp(logprobs - np.max(logprobs))
    shares = weights / weights.sum()
    if expert.name == QUALITY:
        return Verdict(expert=expert.name, abstained=False, fails=min(float(shares @ decile_centres(len(shares))), 1.0))
    named = expert.choices[1 + int(np.argmax(shares[1:]))] if expert.kind == "choice" else None
    return Verdict(expert=expert.name, abstained=False, fails=min(float(shares[1:].sum()), 1.0), error_class=named)


def read_document(
    schema: Mapping[str, Any], completion: Completion | None, tokenizer: Tokenizer
) -> dict[str, Any] | None:
    """The JSON document in a reply; None where there is none, it was cut, is no JSON or is outside the schema."""
    if completion is None or completion.finish_reason == "length":
        return None
    try:
        document: Any = json.loads(tokenizer.decode(completion.ids, skip_special_tokens=True), parse_constant=_refuse)
    except ValueError:
        return None
    return document if fits_schema(schema, document) else None


def read_verdict(expert: ExpertQuestion, completion: Completion | None, tokenizer: Tokenizer) -> Verdict | None:
    """The verdict in a JSON reply: its probability is that of the token in which the verdict begins."""
    document = None if expert.schema is None else read_document(expert.schema, completion, tokenizer)
    if document is None or completion is None:
        return None
    certainty = verdict_probability(completion, document["verdict"], tokenizer)
    passes = document["verdict"] == expert.verdicts[0]
    verdict = Verdict(expert=expert.name, abstained=False, fails=1.0 - certainty if passes else certainty)
    return verdict if passes else with_details(verdict, document)


def with_details(verdict: Verdict, document: Mapping[str, Any]) -> Verdict:
    """The verdict with the line, class and output of a document that says how the script fails."""
    return dataclasses.replace(
        verdict,
        line=document.get("line") or None,
        error_class=document.get("error_class") or None,
        output=document.get("output") or None,
    )


def verdict_probability(completion: Completion, word: str, tokenizer: Tokenizer) -> float:
    """Probability in [0, 1] that the model gave to the token in which the verdict `word` begins; 1 where it is unknown.

    The verdicts begin with different letters, so the token that holds the first letter decides.
    """
    text = tokenizer.decode(completion.ids, skip_special_tokens=True)
    place = text.find(json.dumps(word)) + 1
    token = _token_at(completion.ids, place, tokenizer) if place else None
    if token is None or token >= len(completion.logprobs) or not math.isfinite(completion.logprobs[token]):
        return 1.0
    return math.exp(min(completion.logprobs[token], 0.0))


def _token_at(ids: tuple[int, ...], place: int, tokenizer: Tokenizer) -> int | None:
    """Index of the token that holds character `place` of the decoded text."""
    for index in range(len(ids)):
        if len(tokenizer.decode(ids[: index + 1], skip_special_tokens=True)) > place:
            return index
    return None


def decile_centres(count: int) -> Floats:
    """Centres of `count` equal parts of [0, 1], ascending."""
    return (np.arange(count) + 0.5) / count


def fits_schema(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether `value` is allowed by `schema`; understands the keywords that prompt packs use."""
    if "enum" in schema:
        return value in schema["enum"]
    match schema["type"]:
        case "object":
            known = schema["properties"]
            return (
                isinstance(value, dict)
                and value.keys() <= known.keys()
                and value.keys() >= set(schema["required"])
                and all(fits_schema(known[name], part) for name, part in value.items())
            )
        case "integer":
            whole = isinstance(value, int) and not isinstance(value, bool)
            return whole and schema.get("minimum", value) <= value <= schema.get("maximum", value)
        case "string":
            return isinstance(value, str) and len(value) <= schema.get("maxLength", len(value))
    raise ValueError(f"a schema of type `{schema['type']}` is not understood here")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
