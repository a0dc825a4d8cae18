import numpy as np
import pytest

from wmrl_cli.engines.choices import build_tree


def test_common_beginnings_are_one_branch():
    tree = build_tree([[1, 2], [1, 3]], [[[7], [8]], [[7, 9], [7]]])
    assert tree.tokens == (1, 2, 3, 7)
    assert tree.parents == (-1, 0, 0, 2)
    assert tree.depths == (0, 1, 1, 2)
    assert tree.answers == ((((1, 7),), ((1, 8),)), (((2, 7), (3, 9)), ((2, 7),)))


def test_a_node_sees_itself_and_its_ancestors():
    tree = build_tree([[1, 2], [1, 3]], [[[7], [8]], [[7, 9], [7]]])
    assert tree.ancestors.tolist() == [
        [True, False, False, False],
        [True, True, False, False],
        [True, False, True, False],
        [True, False, True, True],
    ]


def test_paths_lead_to_every_leaf():
    assert build_tree([[1, 2], [1, 3]], [[[7], [8]], [[7, 9], [7]]]).paths() == [[0, 1], [0, 2, 3]]


def test_answers_sum_to_one_and_longer_choices_multiply():
    tree = build_tree([[1]], [[[5], [6, 7]]])
    (answer,) = tree.normalised({(0, 5): np.log(0.2), (0, 6): np.log(0.6), (1, 7): np.log(0.5)})
    np.testing.assert_allclose(np.exp(answer), [0.4, 0.6])


@pytest.mark.parametrize(("suffixes", "choices"), [([[]], [[[1]]]), ([[1]], [[]]), ([[1]], [[[2], []]])])
def test_an_empty_question_is_a_programming_error(suffixes: list, choices: list):
    with pytest.raises(ValueError, match="at least one token"):
        build_tree(suffixes, choices)
