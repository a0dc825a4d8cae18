"""The loss of one step, on tensors only."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from wmrl_cli.learner.ranks import total

SAMPLER_CAP = 2.0  # largest correction of one token for the difference between sampler and learner


@dataclass(frozen=True, kw_only=True)
class LossSums:
    """What a pass adds to the step's metrics: shares and counts that add up over micro-batches and ranks.

    Tensors of shape () without gradient, float64.
    """

    policy: Tensor  # the policy term of the loss
    kl: Tensor  # (1/N) sum_i mean_t k3, nats
    entropy: Tensor  # global token mean, nats
    tokens: Tensor  # tokens of the policy in the loss
    clipped: Tensor  # of these, tokens where the clip took the gradient away
    sampler_difference: Tensor  # sum over tokens of |old - sampler|, nats
    sampler_weight: Tensor  # sum over tokens of the sampler correction
    sampler_weight_squared: Tensor  # sum over tokens of its square

    @classmethod
    def zero(cls) -> LossSums:
        return cls(**{field.name: torch.zeros((), dtype=torch.float64) for field in fields(cls)})

    def __add__(self, other: LossSums) -> LossSums:
        return LossSums(
            **{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)}
        )

    def over_ranks(self) -> LossSums:
        """The sum of every rank's sums."""
        names = [field.name for field in fields(self)]
        values = total(torch.stack([getattr(self, name) for name in names]))
        return LossSums(**dict(zip(names, values.unbind(), strict=True)))


@dataclass(frozen=True, kw_only=True)
class LossReport:
    """`loss` carries the gradient (shape ()); `sums` are this pass's metrics."""

    loss: Tensor
    sums: LossSums


def wmrl_loss(
    logp_BT: Tensor,
    entropy_BT: Tensor,
    old_BT: Tensor,
    sampler_BT: Tensor,
    reference_BT: Tensor | None,
    mask_BT: Tensor,
    coefficient_B: Tensor,
    *,
    sequences: int,
    tokens: int,
    clip: float,
    kl: float,
    entropy: float,
    constant_length: int | None = None,
) -> LossReport:
    """This pass's share of the step's loss: clipped policy term + k3 divergence - entropy bonus.

    With the global normalisers given, the shares of any split of a step add up to the same loss.
    Log-probabilities and entropies are in nats; entries outside the mask are not read and may hold anything.

    Parameters
    ----------
    logp_BT, entropy_BT : of the policy at each token, with gradient.
    old_BT : log-probabilities under the weights at the start of the step.
    sampler_BT : the same, as the inference engine reported them.
    reference_BT : under the frozen reference; None where `kl` is 0.
    mask_BT : True on tokens that the policy chose and that count.
    coefficient_B : w_k A_i / (K n_k), so that the sum over sequences is formula (5) of the paper.
    sequences : N, trajectories in the whole step, over all micro-batches and ranks.
    tokens : True entries of all masks of the step, over all micro-batches and ranks.
    clip : the ratio is clipped to 1 +- clip (Schulman et al. 2017).
    kl, entropy : weights of the two unweighted terms (k3: Schulman 2020, "Approximating KL divergence").
    constant_length : divide a sequence's token sums by this (Liu et al. 2025, Dr. GRPO), not by its own count.
    """

    def inside(values_BT: Tensor) -> Tensor:
        return torch.where(mask_BT, values_BT, torch.zeros_like(values_BT))

    def per_sequence(values_BT: Tensor) -> Tensor:
        return inside(values_BT).sum(dim=1) / length_B

    length_B = mask_BT.sum(dim=1).clamp(min=1) if constant_length is None else constant_length
    logp_BT, old_BT, sampler_BT = inside(logp_BT), inside(old_BT), inside(sampler_BT)
    ratio_BT = (logp_BT - old_BT).exp()
    correction_BT = (old_BT - sampler_BT).exp().clamp(max=SAMPLER_CAP).detach()
    coefficient_B1 = coefficient_B[:, None]
    plain_BT, clipped_BT = ratio_BT * coefficient_B1, ratio_BT.clamp(1 - clip, 1 + clip) * coefficient_B1
    policy = -per_sequence(torch.minimum(plain_BT, clipped_BT) * correction_BT).sum()
    bonus = inside(entropy_BT).sum() / max(tokens, 1)
    divergence = logp_BT.new_zeros(())
    if reference_BT is not None:
        gap_BT = inside(reference_BT) - logp_BT
        divergence = per_sequence(gap_BT.exp() - gap_BT - 1).sum() / max(sequences, 1)
    with torch.no_grad():
        sums = LossSums(
            policy=_sum(policy),
            kl=_sum(divergence),
            entropy=_sum(bonus),
            tokens=_sum(mask_BT),
            clipped=_sum(mask_BT & (clipped_BT < plain_BT)),
            sampler_difference=_sum((old_BT - sampler_BT).abs()),
            sampler_weight=_sum(inside(correction_BT)),
            sampler_weight_squared=_sum(inside(correction_BT**2)),
        )
    return LossReport(loss=policy + kl * divergence - entropy * bonus, sums=sums)


def _sum(values: Tensor) -> Tensor:
    return values.detach().sum(dtype=torch.float64).cpu()
