"""Prompt packs: `compact` for the embedded model, `standard` for Qwen3.5 and other chat models."""

from __future__ import annotations

from wmrl_cli.errors import ConfigError
from wmrl_cli.prompts.base import PromptPack

PACKS = ("compact", "standard")


def get_pack(name: str) -> PromptPack:
    """The prompt pack called `name`. Raises ConfigError for any other name."""
    if name == "compact":
        from wmrl_cli.prompts.compact import CompactPack

        return CompactPack()
    if name == "standard":
        from wmrl_cli.prompts.standard import StandardPack

        return StandardPack()
    raise ConfigError(f"there is no prompt pack `{name}`", f"prompt packs are `{'`, `'.join(PACKS)}`")
