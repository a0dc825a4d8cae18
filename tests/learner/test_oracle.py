"""The learner's gradient against formula (5), written out literally in float64."""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from wmrl_cli.learner.config import LearnerConfig
from wmrl_cli.learner.learner import Learner
from wmrl_cli.maths.fusion import fuse_weights

from .cases import ARCHITECTURES, tiny_model, tiny_tokenizer, trajectories

CONFIG = LearnerConfig(micro_tokens=90, head_tokens=13)


def perturbed(model, seed: int, size: float = 0.02):
    """A copy whose weights are moved a little, so that ratios and KL are not trivial."""
    generator = torch.Generator().manual_seed(seed)
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator))
    return moved


def token_scores(model, sequence):
    """Log-probability and entropy at the tokens that the policy chose, from all logits, in float64."""
    ids = torch.tensor([sequence.ids])
    logp_TV = model(input_ids=ids).logits[0, :-1].double().log_softmax(dim=-1)
    chosen = torch.tensor(sequence.policy_mask)[1:]
    logp = logp_TV.gather(-1, ids[0, 1:, None]).squeeze(-1)[chosen]
    return logp, -(logp_TV.exp() * logp_TV).sum(dim=-1)[chosen]


def flat_gradient(model, value):
    return torch.cat(
        [part.flatten() for part in torch.autograd.grad(value, list(model.parameters()), retain_graph=True)]
    )


def formula_five(policy, old, reference, groups, executed, rho, config):
    """(g_E / V_E + g_WM / V_WM) / (|G_E| / V_E + |G_WM| / V_WM), and the gradients of KL and entropy beside it.

    `groups` holds each group's valid sequences, with *unweighted* advantages.
    """
    policy, old, reference = (copy.deepcopy(model).double() for model in (policy, old, reference))
    size = sum(parameter.numel() for parameter in policy.parameters())
    g_executed, g_simulated = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=torch.float64)
    kl, entropies, everyone = [], [], [sequence for group in groups for sequence in group]
    for group, real in zip(groups, executed, strict=True):
        terms = []
        for sequence in group:
            logp, entropy = token_scores(policy, sequence)
            with torch.no_grad():
                before, frozen = token_scores(old, sequence)[0], token_scores(reference, sequence)[0]
            sampled = torch.tensor(sequence.sampler_logprobs, dtype=torch.float64)[torch.tensor(sequence.policy_mask)]
            ratio, advantage = (logp - before).exp(), sequence.advantage
            gain = torch.minimum(ratio * advantage, ratio.clamp(1 - config.clip, 1 + config.clip) * advantage)
            terms.append((gain * (before - sampled).exp().clamp(max=2)).mean())
            kl.append(((frozen - logp).exp() - (frozen - logp) - 1).mean())
            entropies.append(entropy)
        ascent = flat_gradient(policy, torch.stack(terms).mean())
        if real:
            g_executed += ascent
        else:
            g_simulated += ascent
    v_executed, v_simulated = 1.0, rho
    counts = sum(executed) / v_executed + (len(executed) - sum(executed)) / v_simulated
    fused = (g_executed / v_executed + g_simulated / v_simulated) / counts
    rest = config.kl * torch.stack(kl).sum() / len(everyone) - config.entropy * torch.cat(entropies).mean()
    return -fused + flat_gradient(policy, rest)


def learner_gradient(policy, old, reference, sequences, groups, config):
    """Through `prepare` under the old weights and `backward` under the policy's."""
    learner = Learner(copy.deepcopy(old), copy.deepcopy(reference), tiny_tokenizer(), config)
    batch = learner.prepare(sequences, groups=groups)
    learner.model.load_state_dict(policy.state_dict())
    learner.backward(batch)
    return torch.cat([parameter.grad.flatten().double() for parameter in learner.model.parameters()]), batch


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("rho", "executed"),
    [
        (1.0, [True, False, False]),
        (2.0, [False, True, False]),
        (1e6, [False, False, True]),
        (2.0, [True, True, True]),
        (2.0, [False, False, False]),
    ],
)
def test_the_gradient_is_formula_five(architecture, rho, executed):
    old, sizes = tiny_model(architecture), (4, 2, 3)
    policy, reference = perturbed(old, 1), perturbed(old, 2)
    sequences = trajectories(sizes, seed=7)
    groups = [[s for s in sequences if s.group_id == f"g{k}"] for k in range(3)]
    expected = formula_five(policy, old, reference, groups, executed, rho, CONFIG)
    weights = fuse_weights(executed, sizes, rho)
    weighted = [replace(s, advantage=s.advantage * float(weights[k])) for k, group in enumerate(groups) for s in group]
    found, batch = learner_gradient(policy, old, reference, weighted, 3, CONFIG)
    assert len(batch.micro) > 2
    assert batch.kl_before > 1e-3
    assert (found - expected).norm() < 1e-5 * expected.norm()


@pytest.mark.parametrize("broken", ["advantage", "sampler"])
def test_lost_trajectories_leave_their_groups_mean(broken):
    old, executed, rho = tiny_model(), [True, False, False], 3.0
    policy, reference = perturbed(old, 1), perturbed(old, 2)
    sequences = trajectories((4, 3, 2), seed=11)
    lost = sequences[1]
    if broken == "advantage":
        sequences[1] = replace(lost, advantage=math.nan)
    else:
        nan_at_the_end = [*lost.sampler_logprobs[:-1], math.nan]
        sequences[1] = replace(lost, sampler_logprobs=nan_at_the_end)
    groups = [[s for s in sequences if s.group_id == f"g{k}" and s is not sequences[1]] for k in range(3)]
    expected = formula_five(policy, old, reference, groups, executed, rho, CONFIG)
    weights = fuse_weights(executed, [4, 3, 2], rho)
    weighted = [replace(s, advantage=s.advantage * float(weights[int(s.group_id[1:])])) for s in sequences]
    found, batch = learner_gradient(policy, old, reference, weighted, 3, CONFIG)
    assert (batch.dropped, batch.sequences, batch.groups) == (1, 8, 3)
    assert (found - expected).norm() < 1e-5 * expected.norm()


def test_a_group_that_falls_below_two_leaves_the_step():
    old = tiny_model()
    policy, reference = perturbed(old, 1), perturbed(old, 2)
    sequences = trajectories((4, 2), seed=5)
    left = [s for s in sequences if s.group_id == "g0"]
    sequences[4] = replace(sequences[4], advantage=math.inf)
    found, batch = learner_gradient(policy, old, reference, sequences, 2, CONFIG)
    expected, _ = learner_gradient(policy, old, reference, left, 1, CONFIG)
    assert (batch.dropped, batch.sequences, batch.groups) == (2, 4, 1)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_micro_batches_do_not_change_the_gradient(architecture):
    old = tiny_model(architecture)
    policy, reference = perturbed(old, 1), perturbed(old, 2)
    sequences = trajectories((4, 3, 5), seed=9)
    whole, one = learner_gradient(policy, old, reference, sequences, 3, replace(CONFIG, micro_tokens=100_000))
    assert len(one.micro) == 1
    for micro_tokens in (1, 60, 150):
        parts, batch = learner_gradient(
            policy, old, reference, sequences, 3, replace(CONFIG, micro_tokens=micro_tokens)
        )
        assert len(batch.micro) > 1
        assert (parts - whole).norm() < 1e-6 * whole.norm()


def test_the_order_of_trajectories_does_not_matter():
    old = tiny_model()
    policy, reference = perturbed(old, 1), perturbed(old, 2)
    sequences = trajectories((4, 3), seed=9)
    shuffled = [sequences[i] for i in np.random.default_rng(0).permutation(len(sequences))]
    first, _ = learner_gradient(policy, old, reference, sequences, 2, CONFIG)
    second, _ = learner_gradient(policy, old, reference, shuffled, 2, CONFIG)
    assert (first - second).norm() < 1e-6 * first.norm()


def test_the_constant_length_keeps_groups_equal():
    """With a constant divisor the policy term is each group's mean token sum over that constant."""
    old = tiny_model()
    sequences = trajectories((3, 2), seed=13)
    config = replace(CONFIG, constant_length=40, kl=0.0, entropy=0.0)
    learner = Learner(copy.deepcopy(old), None, tiny_tokenizer(), config)
    learner.backward(learner.prepare(sequences, groups=2))
    model = copy.deepcopy(old).double()
    total = torch.zeros((), dtype=torch.float64)
    for sequence in sequences:
        logp, _ = token_scores(model, sequence)
        sampled = torch.tensor(sequence.sampler_logprobs, dtype=torch.float64)[torch.tensor(sequence.policy_mask)]
        correction = (logp.detach() - sampled).exp().clamp(max=2)
        total = total - sequence.advantage / (2 * sequence.group_size) * (logp * correction).sum() / 40
    expected = flat_gradient(model, total)
    found = torch.cat([parameter.grad.flatten().double() for parameter in learner.model.parameters()])
    assert (found - expected).norm() < 1e-5 * expected.norm()
