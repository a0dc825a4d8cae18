"""Three ways to read a tree of questions behind each prefix; they give the same log-probabilities.

Letters: P prefixes, N nodes of the tree, V vocabulary. Each returns the tree's steps, (node, token), and their
log-probabilities of shape (P, steps).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from wmrl_cli.engines.base import Ids
from wmrl_cli.engines.choices import ChoiceTree
from wmrl_cli.engines.forward import Forward, positions

Steps = list[tuple[int, int]]


def read_tree(forward: Forward, prefixes: Sequence[Ids], tree: ChoiceTree) -> tuple[Steps, Tensor]:
    """One forward over the prefixes, one over the whole tree under a mask that shows each node its ancestors.

    For full attention. The prefixes are padded on the right: causal attention hides padding from what stands
    before it, which keeps the mask, and its cost, out of the long forward; the tree's mask hides it from the
    questions.
    """
    ids, mask = forward.padded(prefixes, left=False)
    cache = forward.cache()
    forward.logits(ids, None, past_key_values=cache, use_cache=True, logits_to_keep=1)
    rows, nodes = len(prefixes), len(tree.tokens)
    inside = forward.tensor(tree.ancestors).expand(rows, nodes, nodes)
    needed = tree.needed()
    logits = forward.logits(
        forward.tensor(tree.tokens).expand(rows, nodes),
        torch.cat([mask.bool()[:, None, :].expand(rows, nodes, -1), inside], -1)[:, None],
        position_ids=mask.sum(-1, keepdim=True) + forward.tensor(tree.depths),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=forward.tensor(needed),
    )
    return _gather(tree, logits, {node: (0, place) for place, node in enumerate(needed)}, paths=1)


def read_forks(forward: Forward, prefixes: Sequence[Ids], tree: ChoiceTree) -> tuple[Steps, Tensor]:
    """One forward over the prefixes, one over every path of the tree behind a copy of its prefix's state.

    For any attention: padding stands only after what is read.
    """
    cache, mask, _ = forward.prefill(prefixes)
    paths = tree.paths()
    cache.reorder_cache(torch.arange(len(prefixes), device=mask.device).repeat_interleave(len(paths)))
    mask = mask.repeat_interleave(len(paths), 0)
    ids, inside = forward.padded([[tree.tokens[node] for node in path] for path in paths], left=False)
    ids, inside = ids.repeat(len(prefixes), 1), inside.repeat(len(prefixes), 1)
    logits = forward.logits(
        ids,
        torch.cat([mask, inside], -1),
        position_ids=mask.sum(-1, keepdim=True) + torch.arange(ids.shape[1], device=ids.device),
        past_key_values=cache,
        use_cache=True,
    )
    return _gather(tree, logits, _places(paths), paths=len(paths))


def read_whole(forward: Forward, prefixes: Sequence[Ids], tree: ChoiceTree) -> tuple[Steps, Tensor]:
    """Each prefix is read again for each path."""
    paths = tree.paths()
    depth = max(map(len, paths))
    # right of a path stands a filler, so that every path's tokens are among the last `depth` ones
    texts = [
        [*prefix, *(tree.tokens[node] for node in path), *[forward.pad] * (depth - len(path))]
        for prefix in prefixes
        for path in paths
    ]
    ids, mask = forward.padded(texts, left=True)
    logits = forward.logits(ids, mask, position_ids=positions(mask), use_cache=False, logits_to_keep=depth)
    return _gather(tree, logits, _places(paths), paths=len(paths))


def _places(paths: Sequence[Sequence[int]]) -> dict[int, tuple[int, int]]:
    """Of each node, a path that holds it and its place there."""
    return {node: (path, place) for path, nodes in enumerate(paths) for place, node in enumerate(nodes)}


def _gather(
    tree: ChoiceTree, logits: Tensor, places: Mapping[int, tuple[int, int]], *, paths: int
) -> tuple[Steps, Tensor]:
    """From logits (P * paths, T, V), and where each node stands in them, the log-probability (P, steps)."""
    steps = sorted({step for choices in tree.answers for choice in choices for step in choice})
    nodes = sorted({node for node, _ in steps})
    path, place = zip(*(places[node] for node in nodes), strict=True)
    by_path = logits.reshape(-1, paths, *logits.shape[1:])  # P, paths, T, V
    by_node = by_path[:, list(path), list(place)].float().log_softmax(-1)  # P, nodes, V
    return steps, by_node[:, [nodes.index(node) for node, _ in steps], [token for _, token in steps]]
