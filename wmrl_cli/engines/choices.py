"""Questions and their allowed answers as one tree of tokens: what they share is read once, whatever the prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wmrl_cli.engines.base import Floats, Ids


@dataclass(frozen=True)
class ChoiceTree:
    """Every suffix, and every choice but its last token, merged by common beginnings. Node n reads `tokens[n]`.

    Letters: N nodes, S suffixes, C choices of a suffix.
    """

    tokens: tuple[int, ...]  # N
    parents: tuple[int, ...]  # N; -1 = the end of the prefix
    depths: tuple[int, ...]  # N; 0 = the token right after the prefix
    answers: tuple[tuple[tuple[tuple[int, int], ...], ...], ...]  # S x C x (node read last, token)

    @property
    def ancestors(self) -> np.ndarray:
        """Boolean N x N: row n is true at n and at the nodes before it on its path."""
        mask = np.eye(len(self.tokens), dtype=bool)
        for node, parent in enumerate(self.parents):  # a parent stands before its children
            if parent >= 0:
                mask[node] |= mask[parent]
        return mask

    def paths(self) -> list[list[int]]:
        """The nodes from the root to each leaf, in order."""
        leaves = set(range(len(self.tokens))) - set(self.parents)
        paths = []
        for leaf in sorted(leaves):
            path, node = [], leaf
            while node >= 0:
                path.append(node)
                node = self.parents[node]
            paths.append(path[::-1])
        return paths

    def needed(self) -> list[int]:
        """The nodes whose next-token distribution an answer is read from, ascending."""
        return sorted({node for choices in self.answers for choice in choices for node, _ in choice})

    def normalised(self, logprobs: dict[tuple[int, int], float]) -> list[Floats]:
        """For each suffix the log-probability of its choices, which sum to one; from that of each (node, token)."""
        result = []
        for choices in self.answers:
            totals = np.array([sum(logprobs[step] for step in choice) for choice in choices], dtype=np.float64)
            result.append(totals - np.logaddexp.reduce(totals))
        return result


def build_tree(suffixes: Sequence[Ids], choices: Sequence[Sequence[Ids]]) -> ChoiceTree:
    """The tree of `suffixes` and their `choices`. Raises ValueError for an empty suffix, choice or list of choices."""
    tokens: list[int] = []
    parents: list[int] = []
    depths: list[int] = []
    children: dict[tuple[int, int], int] = {}

    def descend(node: int, ids: Ids) -> int:
        for token in ids:
            if (node, token) not in children:
                children[node, token] = len(tokens)
                tokens.append(token)
                parents.append(node)
                depths.append(depths[node] + 1 if node >= 0 else 0)
            node = children[node, token]
        return node

    answers = []
    for suffix, options in zip(suffixes, choices, strict=True):
        if not len(suffix) or not options or not all(len(option) for option in options):
            raise ValueError("a question needs a suffix of at least one token and choices of at least one token")
        end = descend(-1, suffix)
        answers.append(
            tuple(tuple((descend(end, option[:t]), option[t]) for t in range(len(option))) for option in options)
        )
    return ChoiceTree(tuple(tokens), tuple(parents), tuple(depths), tuple(answers))
