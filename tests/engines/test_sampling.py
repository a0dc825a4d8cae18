import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wmrl_cli.engines.sampling import sample_tokens, uniforms

LOGITS = torch.tensor([0.5, 0.25, 0.15, 0.1]).log()


def draws(count: int, **options: float) -> list[int]:
    """How often each of four tokens is drawn by `count` numbers that lie evenly in [0, 1)."""
    uniform = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens = sample_tokens(LOGITS.expand(count, 4), uniform, **{"temperature": 1.0, "top_p": 1.0, **options})
    return torch.bincount(tokens, minlength=4).tolist()


def test_tokens_are_drawn_as_often_as_they_are_probable():
    assert draws(100) == [50, 25, 15, 10]


def test_temperature_half_squares_the_odds():
    squares = np.array([0.5, 0.25, 0.15, 0.1]) ** 2
    np.testing.assert_allclose(draws(1000, temperature=0.5), 1000 * squares / squares.sum(), atol=1)


def test_temperature_zero_takes_the_likeliest():
    assert draws(10, temperature=0.0) == [10, 0, 0, 0]


def test_top_p_keeps_the_fewest_tokens_that_hold_it():
    assert draws(100, top_p=0.7) == [67, 33, 0, 0]  # 0.5 + 0.25 reach 0.7
    assert draws(100, top_p=0.5) == [100, 0, 0, 0]
    assert draws(100, top_p=0.01) == [100, 0, 0, 0]  # never none


@given(st.lists(st.booleans(), min_size=2, max_size=12).filter(any), st.floats(0, 1, exclude_max=True))
@settings(max_examples=60, deadline=None)
def test_a_token_that_is_ruled_out_is_never_drawn(allowed: list[bool], uniform: float):
    logits = torch.where(torch.tensor(allowed), 0.0, float("-inf"))[None]
    token = sample_tokens(logits, torch.tensor([uniform], dtype=torch.float64), temperature=1.0, top_p=1.0)
    assert allowed[int(token)]


def test_the_largest_number_below_one_draws_a_real_token():
    logits = torch.tensor([[0.0, 0.0, float("-inf")]])
    below = torch.tensor([np.nextafter(1.0, 0.0)], dtype=torch.float64)
    assert int(sample_tokens(logits, below, temperature=1.0, top_p=1.0)) == 1


def test_a_seed_owns_its_numbers():
    np.testing.assert_array_equal(uniforms(3, 5), uniforms(3, 8)[:5])
    assert not np.array_equal(uniforms(3, 5), uniforms(4, 5))
