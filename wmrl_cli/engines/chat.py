"""Chat templates at token level: what is rendered once, what a later turn adds, and what must never become a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wmrl_cli.engines.base import Tokenizer
from wmrl_cli.errors import ConfigError

Message = dict[str, str]
OPTIONS = {"enable_thinking": False}  # Qwen's templates: the reply starts after an empty <think> block
_REPLY = "@@reply@@"  # stands for a reply while a template is rendered; found again by its text
CUT = "\n[...]\n"


def opening_ids(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """Token ids of `messages` and the start of the assistant's reply."""
    safe = [{**message, "content": defuse(tokenizer, message["content"])} for message in messages]
    return _encode(
        tokenizer, tokenizer.apply_chat_template(safe, tokenize=False, add_generation_prompt=True, **OPTIONS)
    )


def feedback_ids(tokenizer: Tokenizer, reply: Sequence[int], feedback: str) -> list[int]:
    """Token ids that follow `reply`: the rest of the assistant's turn, `feedback` as user, the next reply's start.

    The template is rendered around a marker in the reply's place and only the text after the marker is
    tokenised, so that what was sampled is never rendered again (a template may rewrite history: Qwen's drops
    <think> blocks). `reply` that sampled the end token itself is not given a second one.
    """
    conversation = [
        {"role": "user", "content": "-"},
        {"role": "assistant", "content": _REPLY},
        {"role": "user", "content": defuse(tokenizer, feedback).replace(_REPLY, "")},
    ]
    ids = _encode(tokenizer, _after_reply(tokenizer, conversation, add_generation_prompt=True))
    return ids[1:] if reply and reply[-1] == ids[0] else ids


def end_of_turn(tokenizer: Tokenizer) -> int:
    """The token that the chat template puts after an assistant's reply."""
    conversation = [{"role": "user", "content": "-"}, {"role": "assistant", "content": _REPLY}]
    ids = _encode(tokenizer, _after_reply(tokenizer, conversation, add_generation_prompt=False))
    if not ids or tokenizer.decode(ids[:1]) not in _specials(tokenizer):
        raise ConfigError(
            "the chat template does not end an assistant's turn with a special token",
            "use a model whose template ends turns with a token such as `<|im_end|>`",
        )
    return ids[0]


def defuse(tokenizer: Tokenizer, text: str) -> str:
    """`text` in which no special token's name is left, so that a script or its output cannot end a turn or open one."""
    for special in _specials(tokenizer):
        text = text.replace(special, special[0] + " " + special[1:])
    return text


def cut(tokenizer: Tokenizer, text: str, limit: int) -> str:
    """`text` of at most `limit` tokens: where it is longer, its head and tail around a mark (errors end a log)."""
    ids = _encode(tokenizer, text)
    keep = limit - len(_encode(tokenizer, CUT))
    short = text
    while len(ids) > limit and len(_encode(tokenizer, short)) > limit:
        if keep < 2:
            raise ValueError(f"an observation needs room for its head, its tail and `[...]`: got {limit} tokens")
        head = keep // 2
        short = (
            tokenizer.decode(ids[:head]).rstrip("\ufffd") + CUT + tokenizer.decode(ids[head - keep :]).lstrip("\ufffd")
        )
        keep -= 1  # text that is cut can have more tokens than its parts had
    return short


def _after_reply(tokenizer: Tokenizer, conversation: list[Message], **options: Any) -> str:
    text: str = tokenizer.apply_chat_template(conversation, tokenize=False, **options, **OPTIONS)
    _, marker, after = text.partition(_REPLY)
    if not marker:
        raise ConfigError(
            "the chat template drops the assistant's reply", "use a model with a template for conversations"
        )
    return after


def _encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def _specials(tokenizer: Tokenizer) -> list[str]:
    return [str(token) for token in getattr(tokenizer, "all_special_tokens", ())]
