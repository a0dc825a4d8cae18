"""Key-value states with spare room: a decoding step writes one token instead of copying all that came before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

_SPARE = 64  # tokens of room beyond what is needed, whenever states move


class RoomyLayer(DynamicLayer):
    """A DynamicLayer whose `keys` and `values`, (B, heads, T, width), lie at the start of larger buffers."""

    def __init__(self) -> None:
        super().__init__()
        self._rooms: dict[str, Tensor] = {}

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[..., :0, :], value_states[..., :0, :]
        self.keys = self._append("keys", self.keys, key_states)
        self.values = self._append("values", self.values, value_states)
        return self.keys, self.values

    def _append(self, name: str, states: Tensor, new: Tensor) -> Tensor:
        old, length = states.shape[-2], states.shape[-2] + new.shape[-2]
        room = self._rooms.get(name)
        if room is None or room.data_ptr() != states.data_ptr() or room.shape[-2] < length:  # reordered, or full
            room = self._rooms[name] = states.new_empty(*new.shape[:-2], length + _SPARE, new.shape[-1])
            room[..., :old, :] = states
        room[..., old:length, :] = new
        return room[..., :length, :]


def roomy_cache(config: Any) -> DynamicCache:
    """An empty cache for a model of `config`; layers other than plain full attention keep their own kind."""
    cache = DynamicCache(config=config)
    cache.layers = [RoomyLayer() if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


def join(caches: Sequence[DynamicCache]) -> DynamicCache:
    """One cache that holds the rows of all `caches`, which are of one model and one length. Uses up the first."""
    for target, *others in zip(*(cache.layers for cache in caches), strict=True):
        for name in ("keys", "values"):
            if getattr(target, name, None) is not None:
                setattr(target, name, torch.cat([getattr(layer, name) for layer in (target, *others)]))
        for name in ("conv_states", "recurrent_states"):  # of linear attention
            states = getattr(target, name, {})
            for index in [index for index, state in states.items() if state is not None]:
                states[index] = torch.cat([getattr(layer, name)[index] for layer in (target, *others)])
    return caches[0]
