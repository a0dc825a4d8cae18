"""Joint training of both roles: one model learns to write scripts and to answer the experts' questions about them.

`processes` copies of the model each see their own batches, and their gradients are averaged (gloo), which on
a few cores is faster than one process with as many threads.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy

from scripts.tiny.sequences import IGNORED, Batch, Encoder, Labelled, Tokens, collate
from wmrl_cli.prompts.compact import CompactPack

_POOL = 16  # batches that are sorted by length together
_SHAPE = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
}


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run; batch sizes are a process's."""

    steps: int
    layers: int = 5
    learning_rate: float = 3e-3
    last_rate: float = 0.03  # share of the learning rate at the end of its linear decay
    warmup_steps: int = 50
    weight_decay: float = 0.05
    labelled: int = 8  # executed scripts a step: both losses, or the verdicts' only where the agent wrote them
    imagined: int = 24  # unexecuted scripts a step: the agent's loss only
    verdict_weight: float = 1.0
    processes: int = 2
    seed: int = 0


def new_model(vocabulary: int, layers: int, pad: int, end: int) -> Any:
    """A Qwen3 of about a million parameters with random weights."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        wmrl_pack=CompactPack.name,  # survives saving, so that a fine-tuned copy finds its prompt pack
        vocab_size=vocabulary, num_hidden_layers=layers, max_position_embeddings=2048, tie_word_embeddings=True,
        pad_token_id=pad, eos_token_id=end, bos_token_id=None, **_SHAPE,
    )  # fmt: skip
    return Qwen3ForCausalLM(config)


def train(
    config: TrainConfig, tokenizer_dir: Path, examples: list[Labelled], target: Path, start: Path | None = None
) -> None:
    """Train from random weights, or from `start`, and save model and tokenizer into `target`."""
    arguments = (config, tokenizer_dir, examples, target, start)
    if config.processes == 1:
        _train_in_process(0, *arguments)
        return
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ["MASTER_PORT"] = str(20000 + os.getpid() % 20000)
    torch.multiprocessing.spawn(_train_in_process, arguments, nprocs=config.processes)


def _train_in_process(
    rank: int, config: TrainConfig, tokenizer_dir: Path, examples: list[Labelled], target: Path, start: Path | None
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)
    torch.manual_seed(config.seed)
    if config.processes > 1:
        dist.init_process_group("gloo", rank=rank, world_size=config.processes)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_dir)
    encoder = Encoder(tokenizer)
    if start is None:
        model = new_model(len(tokenizer), config.layers, tokenizer.pad_token_id, tokenizer.eos_token_id)
    else:
        model = AutoModelForCausalLM.from_pretrained(start, dtype=torch.float32)
    model.train()
    stream = _Stream(encoder, examples, config, Random(config.seed * 1000 + rank))
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, betas=(0.9, 0.98)
    )
    began, recent = time.time(), []
    for step in range(config.steps):
        losses = [_losses(model, batch) for batch in stream.batches()]
        script = torch.stack([s for s, _ in losses]).sum(0)
        verdict = torch.stack([v for _, v in losses]).sum(0)
        script_loss, verdict_loss = script[0] / script[1].clamp(min=1), verdict[0] / verdict[1].clamp(min=1)
        (script_loss + config.verdict_weight * verdict_loss).backward()
        _average_gradients(model, config.processes)
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * _schedule(step, config)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        recent.append((script_loss.item(), verdict_loss.item()))
        if rank == 0 and (step % 100 == 99 or step + 1 == config.steps):
            means = tuple(sum(column) / len(recent) for column in zip(*recent, strict=True))
            print(
                f"step {step + 1}/{config.steps}: script {means[0]:.4f}, verdict {means[1]:.4f}, "
                f"{time.time() - began:.0f} s",
                flush=True,
            )
            recent = []
    if rank == 0:
        model.eval()
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
        summary = {
            "executed_scripts": len(examples),
            "script_loss": means[0],
            "verdict_loss": means[1],
            **asdict(config),
        }
        (target / "training.json").write_text(json.dumps(summary, indent=1) + "\n")
    if config.processes > 1:
        dist.destroy_process_group()


def _schedule(step: int, config: TrainConfig) -> float:
    return min(1.0, (step + 1) / config.warmup_steps) * max(config.last_rate, 1 - step / config.steps)


def _losses(model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """(sum, count) of the script tokens' cross-entropy, and the same of the verdicts'."""
    states = model.model(
        input_ids=batch.ids, attention_mask=batch.visible, position_ids=batch.positions, use_cache=False
    )
    hidden = states.last_hidden_state
    sums = []
    for targets in (batch.script_targets, batch.verdict_targets):
        chosen = targets != IGNORED
        loss = cross_entropy(model.lm_head(hidden[chosen]), targets[chosen], reduction="sum")
        sums.append(torch.stack([loss, chosen.sum().float()]))
    return sums[0], sums[1]


def _average_gradients(model: Any, processes: int) -> None:
    if processes == 1:
        return
    gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    for parameter, part in zip(
        model.parameters(), flat.div_(processes).split([g.numel() for g in gradients]), strict=True
    ):
        parameter.grad = part.view_as(parameter)


class _Stream:
    """Endless batches: executed scripts in shuffled rounds, and imagined ones that never repeat."""

    def __init__(self, encoder: Encoder, examples: list[Labelled], config: TrainConfig, random: Random) -> None:
        self._encoder, self._config, self._random = encoder, config, random
        self._sequences = [encoder.example(example) for example in examples]
        self._imagined: list[list[Tokens]] = []
        self._executed: list[list[Tokens]] = []

    def batches(self) -> list[Batch]:
        batches = []
        if self._config.imagined:
            if not self._imagined:
                fresh = [self._encoder.imagined(self._random) for _ in range(_POOL * self._config.imagined)]
                self._imagined = self._by_length(fresh, self._config.imagined)
            batches.append(collate(self._imagined.pop(), self._encoder.pad))
        if self._sequences and self._config.labelled:
            if not self._executed:
                fresh = self._random.sample(self._sequences, len(self._sequences))
                self._executed = self._by_length(fresh, self._config.labelled)
            batches.append(collate(self._executed.pop(), self._encoder.pad))
        return batches

    def _by_length(self, sequences: list[Tokens], size: int) -> list[list[Tokens]]:
        """Batches of similar lengths, in random order: padding would be a third of the work."""
        batches = []
        for first in range(0, len(sequences), _POOL * size):
            pool = sorted(sequences[first : first + _POOL * size], key=lambda sequence: len(sequence.ids))
            batches += [pool[i : i + size] for i in range(0, len(pool), size)]
        self._random.shuffle(batches)
        return batches
