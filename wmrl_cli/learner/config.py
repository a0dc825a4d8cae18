"""The learner's settings; importable without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class LearnerConfig:
    """Settings of one optimiser step; the defaults are the paper's where it gives a number."""

    learning_rate: float = 1e-6  # constant after the warm-up
    warmup_steps: int = 0  # linear rise from learning_rate / warmup_steps
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = 0.0  # AdamW, on all weights
    grad_clip: float = 1.0  # largest norm of the whole step's gradient, after fusion
    kl: float = 0.04  # weight of the k3 divergence from the frozen reference; 0 = no reference is kept
    entropy: float = 0.002  # weight of the entropy bonus
    clip: float = 0.2  # the ratio to the old policy is clipped to 1 +- clip
    updates: int = 1  # optimiser updates on one batch; the clip acts from the second on
    constant_length: int | None = None  # divide token sums by this (Dr. GRPO) instead of each sequence's own count
    mask_truncated: bool = False  # leave truncated trajectories out of the loss (never out of the baseline)
    micro_tokens: int = 16_384  # padded tokens in one forward and backward pass; changes memory, not results
    head_tokens: int = 1_024  # tokens whose logits exist at once
    checkpoint_layers: bool = False  # recompute each layer in the backward pass: less memory, more time
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"  # of the computation; weights are always float32

    def __post_init__(self) -> None:
        positive = ("learning_rate", "grad_clip", "updates", "micro_tokens", "head_tokens")
        not_negative = ("warmup_steps", "weight_decay", "kl", "entropy")
        for name in positive:
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be above 0: got {getattr(self, name)}")
        for name in not_negative:
            if not getattr(self, name) >= 0:
                raise ValueError(f"`{name}` must not be negative: got {getattr(self, name)}")
        if not 0 < self.clip < 1:
            raise ValueError(f"`clip` must lie between 0 and 1: got {self.clip}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"`betas` must be two numbers in [0, 1): got {self.betas}")
        if self.constant_length is not None and self.constant_length < 1:
            raise ValueError(f"`constant_length` must be above 0: got {self.constant_length}")

    def learning_rate_at(self, step: int) -> float:
        """Learning rate of step `step` (from 0)."""
        return (
            self.learning_rate * min(1.0, (step + 1) / self.warmup_steps) if self.warmup_steps else self.learning_rate
        )
