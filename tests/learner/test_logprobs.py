"""Log-probabilities and entropies of chosen tokens against the plain ones, on real (tiny) models."""

from __future__ import annotations

import pytest
import torch

from wmrl_cli.learner.batches import pad, split
from wmrl_cli.learner.logprobs import TokenScorer

from .cases import ARCHITECTURES, VOCABULARY, tiny_model, trajectories

CPU = torch.device("cpu")


def plain(model, tokens):
    """From all logits at once, in float32."""
    logits = model(input_ids=tokens.ids_BT, attention_mask=tokens.attention_BT).logits[:, :-1]
    logp = logits.log_softmax(dim=-1)
    taken = logp.gather(-1, tokens.ids_BT[:, 1:, None]).squeeze(-1)
    entropy = -(logp.exp() * logp).sum(dim=-1)
    chosen = tokens.chosen_BT[:, 1:]
    return taken * chosen, entropy * chosen


def gradient(model, logp, entropy):
    model.zero_grad()
    (logp.sin().sum() + entropy.cos().sum()).backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("head_tokens", [1, 7, 10_000])
def test_chunked_equals_unchunked(architecture, head_tokens):
    model, tokens = tiny_model(architecture), pad(trajectories((3,)), CPU)
    logp, entropy = TokenScorer(model, head_tokens)(tokens.ids_BT, tokens.attention_BT, tokens.chosen_BT)
    expected_logp, expected_entropy = plain(model, tokens)
    torch.testing.assert_close(logp[:, 1:], expected_logp, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(entropy[:, 1:], expected_entropy, rtol=1e-5, atol=1e-5)
    assert not logp[:, 0].any()
    found, expected = gradient(model, logp, entropy), gradient(model, expected_logp, expected_entropy)
    assert (found - expected).norm() < 1e-5 * expected.norm()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_changes_nothing_whatever_ids_it_holds(architecture):
    model, sequences = tiny_model(architecture), trajectories((4,), seed=3)
    scorer = TokenScorer(model, 5)
    together = pad(sequences, CPU)
    ids = torch.where(together.attention_BT.bool(), together.ids_BT, torch.randint(VOCABULARY, together.ids_BT.shape))
    both = scorer(ids, together.attention_BT, together.chosen_BT)
    for row, sequence in enumerate(sequences):
        alone = pad([sequence], CPU)
        for found, expected in zip(both, scorer(alone.ids_BT, alone.attention_BT, alone.chosen_BT), strict=True):
            torch.testing.assert_close(found[row, : len(sequence.ids)], expected[0], rtol=1e-5, atol=2e-6)
            assert not found[row, len(sequence.ids) :].any()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_gradient_flows_into_states_that_predict_observations(architecture):
    model, tokens = tiny_model(architecture), pad(trajectories((3,)), CPU)
    states = []

    def keep(module, arguments, output):
        output.last_hidden_state.retain_grad()
        states.append(output.last_hidden_state)

    handle = model.base_model.register_forward_hook(keep)
    logp, entropy = TokenScorer(model, 16)(tokens.ids_BT, tokens.attention_BT, tokens.chosen_BT)
    handle.remove()
    (logp.sin().sum() + entropy.sum()).backward()
    reached = states[0].grad.abs().sum(dim=-1) > 0
    assert torch.equal(reached[:, :-1], tokens.chosen_BT[:, 1:])
    assert not reached[:, -1].any()


def test_observations_are_read():
    model, sequence = tiny_model(), trajectories((2,))[0]
    observed = next(
        i for i in range(len(sequence.ids)) if i and not sequence.policy_mask[i] and sequence.policy_mask[i - 1]
    )
    tokens = pad([sequence], CPU)
    changed = tokens.ids_BT.clone()
    changed[0, observed] = (changed[0, observed] + 1) % VOCABULARY
    scorer = TokenScorer(model, 64)
    before, _ = scorer(tokens.ids_BT, tokens.attention_BT, tokens.chosen_BT)
    after, _ = scorer(changed, tokens.attention_BT, tokens.chosen_BT)
    assert torch.equal(before[0, :observed], after[0, :observed])
    later = tokens.chosen_BT[0].clone()
    later[:observed] = False
    assert (before[0, later] != after[0, later]).all()


def test_rows_without_a_chosen_token_still_give_a_gradient_of_zero():
    model, tokens = tiny_model(), pad(trajectories((2,)), CPU)
    logp, entropy = TokenScorer(model, 8)(tokens.ids_BT, tokens.attention_BT, torch.zeros_like(tokens.chosen_BT))
    (logp.sum() + entropy.sum()).backward()
    assert not logp.any()
    assert all(parameter.grad is None or not parameter.grad.any() for parameter in model.parameters())


def test_micro_batches_hold_every_sequence_once_within_the_limit():
    lengths = [5, 30, 7, 7, 100, 1]
    parts = split(lengths, 40)
    assert sorted(position for part in parts for position in part) == list(range(6))
    assert parts[0] == [4]  # longer than the limit: alone
    assert all(len(part) * max(lengths[i] for i in part) <= 40 for part in parts[1:])
    assert split([], 40) == []
