"""The loss on hand-made tensors."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wmrl_cli.learner.loss import LossReport, LossSums, wmrl_loss


def report(
    logp, *, old=None, sampler=None, reference=None, entropy_BT=None, mask=None, coefficient=None, **settings
) -> LossReport:
    zeros = torch.zeros_like(logp)
    old = logp.detach() if old is None else old
    return wmrl_loss(
        logp,
        zeros if entropy_BT is None else entropy_BT,
        old,
        old if sampler is None else sampler,
        reference,
        torch.ones_like(logp, dtype=torch.bool) if mask is None else mask,
        torch.ones(len(logp)) if coefficient is None else coefficient,
        **{"sequences": len(logp), "tokens": logp.numel(), "clip": 0.2, "kl": 0.0, "entropy": 0.0, **settings},
    )


def test_clipped_policy_term_by_hand():
    # ratios 1.5 (clipped to 1.2) and 1.0, coefficient 2, third token masked
    logp = torch.tensor([[1.5, 1.0, 9.0]]).log()
    mask = torch.tensor([[True, True, False]])
    found = report(logp, old=torch.zeros(1, 3), mask=mask, coefficient=torch.tensor([2.0]))
    assert found.loss.item() == pytest.approx(-(2 * 1.2 + 2 * 1.0) / 2)
    assert found.sums.clipped.item() == 1
    assert found.sums.tokens.item() == 2


def test_a_negative_advantage_is_clipped_from_below_only():
    # ratio 0.5 -> 0.8 (no gradient left), ratio 1.5 stays: min(1.5 * -1, 1.2 * -1) = -1.5
    logp = torch.tensor([[0.5, 1.5]]).log().requires_grad_()
    found = report(logp, old=torch.zeros(1, 2), coefficient=torch.tensor([-1.0]))
    assert found.loss.item() == pytest.approx((0.8 + 1.5) / 2)
    found.loss.backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == [[0.0, pytest.approx(0.75)]]


def test_kl_and_entropy_by_hand():
    # k3 of gaps log 2 and 0: 2 - log 2 - 1 and 0; two sequences of one and two tokens
    logp = torch.zeros(2, 2)
    reference = torch.tensor([[math.log(2), 7.0], [math.log(2), 0.0]])
    mask = torch.tensor([[True, False], [True, True]])
    entropy = torch.tensor([[1.0, 100.0], [2.0, 3.0]])
    k3 = 1 - math.log(2)
    found = report(
        logp,
        reference=reference,
        entropy_BT=entropy,
        mask=mask,
        coefficient=torch.zeros(2),
        tokens=3,
        kl=0.5,
        entropy=0.1,
    )
    assert found.sums.kl.item() == pytest.approx((k3 + k3 / 2) / 2)
    assert found.sums.entropy.item() == pytest.approx(2.0)
    assert found.loss.item() == pytest.approx(0.5 * (k3 + k3 / 2) / 2 - 0.1 * 2.0)


def test_the_sampler_correction_is_capped_at_two_and_carries_no_gradient():
    # old - sampler = log 1.5, log 10: corrections 1.5 and 2
    logp = torch.zeros(1, 2, requires_grad=True)
    found = report(logp, sampler=-torch.tensor([[1.5, 10.0]]).log())
    assert found.loss.item() == pytest.approx(-(1.5 + 2.0) / 2)
    assert found.sums.sampler_weight.item() == pytest.approx(3.5)
    assert found.sums.sampler_weight_squared.item() == pytest.approx(1.5**2 + 4)
    assert found.sums.sampler_difference.item() == pytest.approx(math.log(15))
    found.loss.backward()
    assert logp.grad is not None
    assert logp.grad.tolist() == [[pytest.approx(-0.75), pytest.approx(-1.0)]]


def test_a_constant_length_replaces_each_sequences_own():
    logp = torch.zeros(2, 3)
    mask = torch.tensor([[True, False, False], [True, True, True]])
    reference = torch.full((2, 3), math.log(2))
    own = report(logp, mask=mask, reference=reference)
    constant = report(logp, mask=mask, reference=reference, constant_length=6)
    k3 = 1 - math.log(2)
    assert own.sums.policy.item() == pytest.approx(-2.0)
    assert constant.sums.policy.item() == pytest.approx(-(1 / 6 + 3 / 6))
    assert constant.sums.kl.item() == pytest.approx(k3 * (1 / 6 + 3 / 6) / 2)


def test_on_policy_gradient_is_reinforce():
    logp = torch.randn(3, 4, requires_grad=True)
    coefficient = torch.tensor([1.0, -2.0, 0.5])
    mask = torch.tensor([[True] * 4, [True, True, False, False], [False, True, True, True]])
    report(logp, mask=mask, coefficient=coefficient).loss.backward()
    reinforce = -(coefficient[:, None] * mask / mask.sum(dim=1, keepdim=True))
    assert logp.grad is not None
    torch.testing.assert_close(logp.grad, reinforce)


@pytest.mark.parametrize("rubbish", [math.nan, math.inf, -math.inf, 1e30])
def test_masked_tokens_may_hold_anything(rubbish):
    mask = torch.tensor([[True, False, True]])
    clean = [torch.tensor([[-1.0, -1.0, -2.0]]) + shift for shift in (0.0, 0.3, -0.2, 0.1)]
    dirty = [torch.where(mask, values, rubbish) for values in clean]
    results = []
    for logp, old, sampler, reference in (clean, dirty):
        logp = logp.clone().requires_grad_()
        found = report(
            logp,
            old=old,
            sampler=sampler,
            reference=reference,
            entropy_BT=logp * 2,
            mask=mask,
            tokens=2,
            kl=0.1,
            clip=0.2,
        )
        found.loss.backward()
        assert logp.grad is not None
        results.append((found, logp.grad))
    assert results[0][0].loss.item() == results[1][0].loss.item()
    assert torch.equal(results[0][1], results[1][1])
    assert results[1][1][0, 1] == 0
    assert results[0][0].sums == results[1][0].sums


def test_a_batch_masked_whole_gives_zero_and_finite_metrics():
    logp = torch.randn(2, 3, requires_grad=True)
    mask = torch.zeros(2, 3, dtype=torch.bool)
    found = report(logp, reference=torch.randn(2, 3), mask=mask, entropy_BT=logp * 2, tokens=0, kl=0.1)
    found.loss.backward()
    assert found.loss.item() == 0
    assert logp.grad is not None
    assert not logp.grad.any()
    assert all(getattr(found.sums, field.name).item() == 0 for field in fields(LossSums))


@given(cut=st.integers(1, 4), seed=st.integers(0, 1000))
def test_splitting_a_step_changes_nothing(cut, seed):
    generator = torch.Generator().manual_seed(seed)
    logp, old, sampler, reference, entropy = (
        torch.randn(5, 6, generator=generator, dtype=torch.float64) for _ in range(5)
    )
    mask = torch.rand(5, 6, generator=generator) < 0.7
    coefficient = torch.randn(5, generator=generator, dtype=torch.float64)

    def part(rows: slice) -> LossReport:
        return wmrl_loss(
            logp[rows],
            entropy[rows],
            old[rows],
            sampler[rows],
            reference[rows],
            mask[rows],
            coefficient[rows],
            sequences=5,
            tokens=int(mask.sum()),
            clip=0.2,
            kl=0.04,
            entropy=0.002,
        )

    whole, first, second = part(slice(None)), part(slice(cut)), part(slice(cut, None))
    assert (first.loss + second.loss).item() == pytest.approx(whole.loss.item(), rel=1e-12, abs=1e-12)
    together = first.sums + second.sums
    for field in fields(LossSums):
        assert getattr(together, field.name).item() == pytest.approx(getattr(whole.sums, field.name).item(), abs=1e-12)
