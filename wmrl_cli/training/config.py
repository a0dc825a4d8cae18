"""What a training run is: one frozen value, and the presets that fill it in for a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from wmrl_cli.config import build_config, merged, read_toml, with_flags
from wmrl_cli.learner.config import LearnerConfig
from wmrl_cli.maths.online import CalibratorConfig
from wmrl_cli.maths.outcomes import RewardLadder
from wmrl_cli.presets import PRESETS
from wmrl_cli.sandbox.config import SandboxConfig
from wmrl_cli.seeds import digest


@dataclass(frozen=True, kw_only=True)
class RolloutConfig:
    """How the agent plays one trajectory. Null takes the prompt pack's value."""

    turns: int | None = None  # 1 to 4
    max_new_tokens: int | None = None  # a turn
    reward_turn: Literal["best", "last"] = "best"  # which turn's reward is the trajectory's

    def __post_init__(self) -> None:
        if self.turns is not None and not 1 <= self.turns <= 4:
            raise ValueError(f"`turns` must lie in 1 to 4: got {self.turns}")


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """A training run. The defaults are the paper's (arXiv 2608.12564); `PRESETS` replace some by model."""

    model: str = "tiny"
    world_model: str | None = None  # null: the agent's own backbone, frozen
    world_model_url: str | None = None  # an OpenAI-compatible server that serves it; null: in this process
    steps: int = 100
    groups_per_step: int = 8
    group_size: int = 8
    anchor_frac: float = 0.1
    min_anchors_per_step: int = 0
    anchor_feedback: Literal["executed", "simulated"] = "executed"
    anchors_only: bool = False
    standardize: bool = True
    seed: int = 0
    checkpoint_every: int = 5
    device: str = "auto"
    rollout: RolloutConfig = field(default_factory=RolloutConfig)
    calibration: CalibratorConfig = field(default_factory=CalibratorConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    reward: RewardLadder = field(default_factory=RewardLadder)

    def __post_init__(self) -> None:
        if not 0.0 <= self.anchor_frac <= 1.0:
            raise ValueError(f"`anchor_frac` must lie in [0, 1]: got {self.anchor_frac}")
        if self.anchors_only and self.anchor_frac == 0.0 and self.min_anchors_per_step == 0:
            raise ValueError("`anchors_only` with `anchor_frac = 0` leaves nothing to train on")
        for name in ("steps", "groups_per_step", "group_size", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` must be at least 1: got {getattr(self, name)}")
        if self.group_size < 2:
            raise ValueError(
                f"`group_size` must be at least 2, an advantage is relative to a group: got {self.group_size}"
            )
        if not 0 <= self.min_anchors_per_step <= self.groups_per_step:
            raise ValueError(
                f"`min_anchors_per_step` must lie in 0 to {self.groups_per_step}: got {self.min_anchors_per_step}"
            )

    @property
    def uses_world_model(self) -> bool:
        """Whether any group is simulated: plain GRPO and the anchors-only control never ask the world model."""
        return self.anchor_frac < 1.0 and not self.anchors_only

    @property
    def identity(self) -> str:
        """Digest of all that decides the run's numbers; a run may be lengthened, and moved to other hardware."""
        values = asdict(self)
        for name in ("steps", "checkpoint_every", "device", "world_model_url"):
            del values[name]
        del values["sandbox"]["slots"]
        return digest(values)


def train_config(preset: str, file: Path | None, flags: Mapping[str, Any]) -> TrainConfig:
    """The preset, then the TOML file, then the flags that are not None (`section.key` for a nested one).

    Raises ConfigError for an unknown key or a value out of range.
    """
    values = merged(PRESETS[preset], read_toml(file) if file else {})
    return build_config(TrainConfig, with_flags(values, flags), where=str(file or ""))
