"""Tiny random models and tokenizers that exist nowhere else: real architectures, built in a second, no network."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers, trainers
from tokenizers.models import BPE

TEXTS = [
    "import pandas as pd\ntrain = pd.read_csv('train.csv')\ntest = pd.read_csv('test.csv')\n",
    "from sklearn.linear_model import Ridge\nmodel = Ridge().fit(train[['a', 'b']], train['y'])\n",
    "Reply with one block:\n```python\nprint('hello')\n```\nThe script raised ValueError: bad shape (3, 4).\n",
    '{"verdict":"pass","line":null,"error":"KeyError","output":"Traceback (most recent call last):"}\n',
]
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# As Qwen's templates do: <think> blocks leave the history, and a reply without thinking starts with an empty one.
THINKING = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' and '</think>' in message.content %}"
    "{{ message.content.split('</think>')[-1].lstrip('\n') }}{% else %}{{ message.content }}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


@cache
def _backend() -> str:
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", special=False), AddedToken("</think>", special=False)])
    return str(tokenizer.to_str())


def build_tokenizer(template: str = CHATML) -> Any:
    """A byte-level BPE tokenizer of about 400 tokens with `<|im_end|>` as end token and a chat template."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(_backend()), eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )  # fmt: skip
    tokenizer.chat_template = template
    return tokenizer


def build_qwen3(
    tokenizer: Any, *, seed: int = 0, size: int = 64, layers: int = 2, dtype: torch.dtype = torch.float32
) -> Any:
    """A random Qwen3; large initial weights, so that its distributions are far from flat."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=size, intermediate_size=3 * size, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, head_dim=size // 4, max_position_embeddings=1024,
        tie_word_embeddings=True, initializer_range=0.1, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return Qwen3ForCausalLM(config).to(dtype).eval()


def build_qwen35(tokenizer: Any, *, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
    """A random Qwen3.5 text model: four layers, three of linear attention and one of full attention."""
    from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

    torch.manual_seed(seed)
    config = Qwen3_5TextConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=4,
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=1024, full_attention_interval=4,
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
        tie_word_embeddings=True, initializer_range=0.1, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return Qwen3_5ForCausalLM(config).to(dtype).eval()
