"""The world model: eight experts on one frozen language model, in the sandbox's place."""

from __future__ import annotations

from wmrl_cli.world_model.world_model import WorldModel

__all__ = ["WorldModel"]
