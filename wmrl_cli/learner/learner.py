"""The learner: one optimiser step on a batch of trajectories (method.md section 6), and its checkpoints."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from wmrl_cli.errors import StageError
from wmrl_cli.learner import checkpoint, loading, ranks
from wmrl_cli.learner.batches import Scored, Tokens, pad, split, spread
from wmrl_cli.learner.config import LearnerConfig
from wmrl_cli.learner.logprobs import TokenScorer
from wmrl_cli.learner.loss import LossSums, wmrl_loss
from wmrl_cli.learner.sequences import StepStats, TrainSequence, recount

KL_AT_START = {torch.float32: 1e-6, torch.bfloat16: 2e-3}  # nats; rounding alone gives less

# A pass that teaches nothing, for a rank that has no sequence left.
SILENT = TrainSequence(
    ids=[0, 0], policy_mask=[False, False], sampler_logprobs=[0.0, 0.0], advantage=0.0, group_size=2, group_id=""
)


@dataclass(frozen=True, kw_only=True, eq=False)
class MicroBatch:
    """Padded sequences with everything that the loss needs; see `wmrl_loss`."""

    tokens: Tokens
    old_BT: Tensor
    sampler_BT: Tensor
    reference_BT: Tensor | None
    mask_BT: Tensor
    coefficient_B: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """A step's micro-batches on this rank, and its normalisers over all ranks."""

    micro: list[MicroBatch]
    groups: int  # K
    sequences: int  # N
    tokens: int
    dropped: int
    truncated: int
    kl_before: float  # mean over tokens of k3, before the update, nats
    sampler_difference_max: float


class Learner:
    """A policy, its frozen reference and its optimiser.

    `model` is the live module. Its weights are float32 masters, spread over the ranks of a job; on a GPU the
    computation runs in bfloat16 under `autocast()`. `sampler` is what an engine may generate with between steps:
    the live module itself, or on several ranks a whole copy in the computation's dtype, which follows it (token
    by token, gathering spread weights would take longer than computing).
    """

    def __init__(
        self,
        model: Any,
        reference: Any | None,
        tokenizer: Any,
        config: LearnerConfig,
        *,
        whole_reference: bool = False,
        export_dtype: torch.dtype = torch.float32,
    ) -> None:
        """`whole_reference`: not spread over the ranks, so that an engine may read it too."""
        if (reference is None) != (config.kl == 0):
            raise ValueError("a reference is needed where `kl` is above 0, and only there")
        self.model, self.tokenizer, self.config, self.export_dtype = model, tokenizer, config, export_dtype
        self.device = next(model.parameters()).device
        self.dtype = loading.compute_dtype(config, self.device)
        if config.checkpoint_layers:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.scorer = TokenScorer(model, config.head_tokens)
        self.reference = None if reference is None else TokenScorer(reference.requires_grad_(False), config.head_tokens)
        for scorer in (self.scorer, None if whole_reference else self.reference):
            if scorer is not None:
                ranks.spread_weights(scorer, scorer.model.base_model.layers)
        self.sampler = model
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=config.learning_rate,
            betas=config.betas,
            weight_decay=config.weight_decay,
            foreach=False,  # weight by weight, as on a CPU: all at once needs another copy of them on a GPU
        )
        self.steps = 0

    @classmethod
    def build(
        cls,
        source: str | Path,
        config: LearnerConfig | None = None,
        device: str = "auto",
        *,
        whole_reference: bool = False,
    ) -> Self:
        """A learner for the model of a folder or hub id; the reference is the same model, frozen.

        Under `torchrun` every rank builds one on a GPU of its own; weights, gradients and optimiser are spread
        over the ranks, and the reference unless `whole_reference`. Raises UnavailableError where the model, the
        hub, the GPU or the memory is missing.
        """
        ranks.join()
        config, place = config or LearnerConfig(), loading.pick_device(ranks.own_device(device))
        settings = loading.load_config(source)
        compute = loading.compute_dtype(config, place)
        held = loading.HeldBytes.of(
            compute.itemsize, ranks=ranks.world(), reference=config.kl > 0, whole_reference=whole_reference
        )
        loading.check_memory(source, settings, place, held)
        tokenizer = loading.load_tokenizer(source)
        model = loading.load_model(source, torch.float32, place)
        loading.check_head(model)
        reference = loading.load_model(source, compute, place) if config.kl else None
        learner = cls(
            model,
            reference,
            tokenizer,
            config,
            whole_reference=whole_reference,
            export_dtype=_stored_dtype(settings),
        )
        if ranks.world() > 1:  # once the weights are spread, so that they are never whole beside it
            learner.sampler = loading.load_model(source, compute, place)
        return learner

    def autocast(self) -> Any:
        """The context in which the model computes; generate in it too, so that sampler and learner agree."""
        return nullcontext() if self.dtype is torch.float32 else torch.autocast(self.device.type, dtype=self.dtype)

    def step(self, sequences: Sequence[TrainSequence], *, groups: int) -> StepStats:
        """One step on this rank's `sequences`; `groups` is K of the whole step, over all ranks.

        Raises StageError where the policy is not its reference before the first step, or where the
        gradient is not finite; the weights are then unchanged.
        """
        started = time.perf_counter()
        batch = self.prepare(sequences, groups=groups)
        if self.steps == 0 and batch.kl_before > KL_AT_START[self.dtype]:
            raise StageError(
                f"the policy differs from its reference before the first step: mean KL is `{batch.kl_before:.3g}`",
                "the weights were not loaded rightly; start from the folder that the reference was read from",
            )
        learning_rate = self.config.learning_rate_at(self.steps)
        for _ in range(self.config.updates):
            sums, grad_norm = self.backward(batch), 0.0
            if batch.tokens:
                grad_norm = self._update(learning_rate)
        self.optimizer.zero_grad(set_to_none=True)
        self._refresh_sampler()
        self.steps += 1
        return self._stats(batch, sums, grad_norm, learning_rate, time.perf_counter() - started)

    def prepare(self, sequences: Sequence[TrainSequence], *, groups: int) -> Batch:
        """Old and reference log-probabilities, and normalisers without the trajectories that hold a NaN."""
        scored = self._score(sequences)
        usable = [entry.finite() for entry in scored]
        unusable = [
            (entry.sequence.group_id, entry.sequence.group_size)
            for entry, fine in zip(scored, usable, strict=True)
            if not fine
        ]
        left = recount(sequences, usable, Counter(key for part in ranks.gather(unusable) for key in part), groups)
        kept = [scored[position] for position in left.kept]
        micro = [
            self._micro_batch(
                [kept[i] for i in part] or [self._silent()], [left.sizes[i] for i in part] or [2], left.groups
            )
            for part in self._passes([entry.sequence for entry in kept])
        ]
        kl_sum, kl_count = ranks.total(torch.tensor(_k3(kept), dtype=torch.float64)).tolist()
        return Batch(
            micro=micro,
            groups=left.groups,
            sequences=ranks.count(len(kept)),
            tokens=ranks.count(sum(int(part.mask_BT.sum()) for part in micro)),
            dropped=ranks.count(len(sequences) - len(kept)),
            truncated=ranks.count(sum(entry.sequence.truncated for entry in kept)),
            kl_before=kl_sum / max(kl_count, 1),
            sampler_difference_max=max(ranks.gather(_largest_difference(kept))),
        )

    def backward(self, batch: Batch) -> LossSums:
        """The whole step's gradient in the parameters' `.grad`; the metrics' sums over all ranks."""
        self.optimizer.zero_grad(set_to_none=True)
        sums = LossSums.zero()
        for part in batch.micro:
            with self._recompute_layers():
                with self.autocast():
                    logp_BT, entropy_BT = self.scorer(
                        part.tokens.ids_BT, part.tokens.attention_BT, part.tokens.chosen_BT
                    )
                report = wmrl_loss(
                    logp_BT,
                    entropy_BT,
                    part.old_BT,
                    part.sampler_BT,
                    part.reference_BT,
                    part.mask_BT,
                    part.coefficient_B,
                    sequences=batch.sequences,
                    tokens=batch.tokens,
                    clip=self.config.clip,
                    kl=self.config.kl,
                    entropy=self.config.entropy,
                    constant_length=self.config.constant_length,
                )
                torch.autograd.backward(report.loss * ranks.world())  # sharded gradients are averaged over ranks
            sums = sums + report.sums
        return sums.over_ranks()

    def save(self, folder: Path) -> None:
        """Weights, optimiser, step and random state; the folder appears whole or not at all."""
        checkpoint.save(folder, self.model, self.optimizer, self.steps)

    def load(self, folder: Path) -> None:
        """Continue from `save`: the next steps are those of the uninterrupted run. Raises StageError."""
        self.steps = checkpoint.load(folder, self.model, self.optimizer)
        self._refresh_sampler()

    def export(self, folder: Path) -> None:
        """A Hugging Face folder with tokenizer, in the source's number format; whole or not at all."""
        checkpoint.export(folder, self.model, self.tokenizer, self.export_dtype)

    def _refresh_sampler(self) -> None:
        if self.sampler is not self.model:
            ranks.copy_weights(self.model, self.sampler)

    def _score(self, sequences: Sequence[TrainSequence]) -> list[Scored]:
        found: dict[int, Scored] = {}
        for part in self._passes(sequences):
            rows = [sequences[position] for position in part] or [SILENT]
            old = self._logprobs(self.scorer, rows)
            reference: Sequence[Tensor | None] = (
                [None] * len(rows) if self.reference is None else self._logprobs(self.reference, rows)
            )
            for position, old_P, reference_P in zip(part, old, reference, strict=False):  # none of `SILENT`
                found[position] = Scored(sequence=sequences[position], old_P=old_P, reference_P=reference_P)
        return [found[position] for position in range(len(sequences))]

    def _passes(self, sequences: Sequence[TrainSequence]) -> list[list[int]]:
        """Positions of each micro-batch; empty ones at the end where another rank has more.

        Every rank must go through the model equally often, since each pass gathers weights from all of them.
        """
        parts = split([len(sequence.ids) for sequence in sequences], self.config.micro_tokens)
        return parts + [[]] * (max(ranks.gather(len(parts))) - len(parts))

    def _silent(self) -> Scored:
        nothing = torch.zeros(0)
        return Scored(sequence=SILENT, old_P=nothing, reference_P=None if self.reference is None else nothing)

    @torch.no_grad()
    def _logprobs(self, scorer: TokenScorer, rows: Sequence[TrainSequence]) -> list[Tensor]:
        tokens = pad(rows, self.device)
        with self.autocast():
            logp_BT, _ = scorer(tokens.ids_BT, tokens.attention_BT, tokens.chosen_BT, with_entropy=False)
        return [logp_T[chosen_T].cpu() for logp_T, chosen_T in zip(logp_BT, tokens.chosen_BT, strict=True)]

    def _micro_batch(self, rows: Sequence[Scored], sizes: Sequence[int], groups: int) -> MicroBatch:
        tokens = pad([row.sequence for row in rows], self.device)
        counted_B = torch.tensor(
            [not (self.config.mask_truncated and row.sequence.truncated) for row in rows], device=self.device
        )
        reference = [row.reference_P for row in rows if row.reference_P is not None]
        return MicroBatch(
            tokens=tokens,
            old_BT=spread([row.old_P for row in rows], tokens.chosen_BT),
            sampler_BT=spread([row.sampler_P for row in rows], tokens.chosen_BT),
            reference_BT=spread(reference, tokens.chosen_BT) if reference else None,
            mask_BT=tokens.chosen_BT & counted_B[:, None],
            coefficient_B=torch.tensor(
                [row.sequence.advantage / (groups * size) for row, size in zip(rows, sizes, strict=True)],
                dtype=torch.float32,
                device=self.device,
            ),
        )

    def _update(self, learning_rate: float) -> float:
        norm = ranks.whole(torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.grad_clip)).item()
        if not norm < float("inf"):
            raise StageError(
                f"the gradient of step {self.steps + 1} is not finite",
                "lower the learning rate, or start again from an earlier checkpoint",
            )
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        return norm

    @contextmanager
    def _recompute_layers(self) -> Iterator[None]:
        """Let layers forget their activations until the backward pass, if asked for.

        Transformers does this for layers in training mode only; their children stay in evaluation mode,
        so that no dropout wakes up.
        """
        layers = [module for module in self.model.modules() if getattr(module, "gradient_checkpointing", False)]
        for layer in layers:
            layer.training = True
        try:
            yield
        finally:
            for layer in layers:
                layer.training = False

    def _stats(self, batch: Batch, sums: LossSums, grad_norm: float, learning_rate: float, seconds: float) -> StepStats:
        tokens = max(batch.tokens, 1)
        policy, kl, entropy = sums.policy.item(), sums.kl.item(), sums.entropy.item()
        weight_squared = sums.sampler_weight_squared.item()
        return StepStats(
            step=self.steps,
            updated=batch.tokens > 0,
            loss=policy + self.config.kl * kl - self.config.entropy * entropy,
            policy_loss=policy,
            kl=kl,
            entropy=entropy,
            clip_share=sums.clipped.item() / tokens,
            grad_norm=grad_norm,
            learning_rate=learning_rate,
            sampler_difference=sums.sampler_difference.item() / tokens,
            sampler_difference_max=batch.sampler_difference_max,
            effective_sample_size=sums.sampler_weight.item() ** 2 / (tokens * weight_squared)
            if weight_squared
            else 0.0,
            groups=batch.groups,
            sequences=batch.sequences,
            tokens=batch.tokens,
            dropped=batch.dropped,
            truncated=batch.truncated,
            seconds=seconds,
        )


def _stored_dtype(settings: Any) -> torch.dtype:
    """The number format that the source's configuration names, float32 where it names none."""
    named = getattr(settings.get_text_config(), "dtype", None) or getattr(settings, "dtype", None)
    return named if isinstance(named, torch.dtype) else torch.float32


def _k3(rows: Sequence[Scored]) -> tuple[float, float]:
    """Sum over chosen tokens of the k3 divergence before the update, and their number."""
    gaps = [(row.reference_P - row.old_P).double() for row in rows if row.reference_P is not None]
    return sum(float((gap.exp() - gap - 1).sum()) for gap in gaps), float(sum(len(gap) for gap in gaps))


def _largest_difference(rows: Sequence[Scored]) -> float:
    return max((float((row.old_P - row.sampler_P).abs().max()) for row in rows if len(row.old_P)), default=0.0)
