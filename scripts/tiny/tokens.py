"""The tokenizer: byte-level BPE that may merge across words and lines, so that a script is some 70 tokens long."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from scripts.tiny.grammar import write_script
from scripts.tiny.imagined import imagine
from wmrl_cli.prompts.base import DECILES
from wmrl_cli.prompts.compact import CompactPack, as_reply, header

END_OF_TEXT, TURN_START, TURN_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# A quoted name is a word of its own, so that it has the same tokens wherever it stands. So is a turn's role, so that
# a reply has the same tokens whether it was generated or is read back as part of a conversation.
_WORDS = r"'[^'\n]*'|\A(?:user|assistant|system)\n"
_CONTEXT = 2048


def train_tokenizer(vocabulary: int, *, texts: int, seed: int) -> Any:
    """A fast tokenizer of `vocabulary` entries, trained on imagined tasks and their scripts."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(_WORDS), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    answers = [choice for expert in CompactPack.experts for choice in expert.choices]
    words = [word for word in dict.fromkeys(answers) if word not in DECILES]  # a digit is one token anyhow
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(words),
        special_tokens=[END_OF_TEXT, TURN_START, TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=160,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_corpus(texts, Random(seed)), trainer)
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in words])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        model_max_length=_CONTEXT,
        padding_side="left",
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _corpus(texts: int, random: Random) -> Iterable[str]:
    for _ in range(texts):
        facts = imagine(random)
        yield f"user\n{header(facts)}"
        yield f"assistant\n{as_reply(write_script(facts, random))}"
    for expert in CompactPack.experts:
        yield from (f"user\n{expert.name}?", "assistant\n") * (texts // 5)
