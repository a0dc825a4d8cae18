"""The shipped folder: half-precision weights, tokenizer, and a card whose every number was measured on them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TEMPLATE = Path(__file__).with_name("card.md")

_ROWS: Sequence[tuple[str, str, str]] = (
    ("scripts / tasks", "scripts", "{scripts} / {tasks}"),
    ("different scripts", "distinct", "{distinct:.0%}"),
    ("valid", "valid", "{valid:.1%}"),
    (
        "mean reward (standard deviation; inside groups)",
        "reward",
        "{reward:.3f} ({reward_sd:.2f}; {reward_sd_in_group:.2f})",
    ),
    ("mean leaderboard position of valid scripts", "q_of_valid", "{q_of_valid:.3f}"),
    ("world model: valid or not, accuracy", "valid_accuracy", "{valid_accuracy:.1%}"),
    (
        "world model: status accuracy (always the commonest)",
        "status_accuracy",
        "{status_accuracy:.1%} ({status_majority:.1%})",
    ),
    ("Spearman correlation inside groups", "spearman_in_group", "{spearman_in_group:.3f}"),
    ("pairs inside groups in the right order", "pair_accuracy", "{pair_accuracy:.1%}"),
    (
        "Spearman correlation of position, valid scripts of a task",
        "quality_spearman_in_task",
        "{quality_spearman_in_task:.3f}",
    ),
    ("bias of the expected reward", "bias", "{bias:+.3f}"),
    ("mean absolute error of the expected reward", "mae", "{mae:.3f}"),
)


def ship_weights(source: Path, target: Path) -> None:
    """Save model and tokenizer of `source` into `target`, in half precision; they are opened in single precision."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).half()
    model.config.dtype = torch.float32
    model.save_pretrained(target)
    config = json.loads((target / "config.json").read_text())
    config["dtype"] = "float32"  # what `dtype="auto"` opens: half precision is only how the weights are stored
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    AutoTokenizer.from_pretrained(source).save_pretrained(target)
    for file in target.iterdir():
        file.chmod(0o644)


def write_card(
    target: Path, facts: Mapping[str, Any], stages: Sequence[str], reports: Mapping[str, Any], remarks: str
) -> None:
    """Write `target`/README.md from the measured reports of the splits `train` and `held_out`."""
    both = (reports["train"], reports["held_out"])
    results = "\n".join(
        f"| {title} | {form.format(**both[0])} | {form.format(**both[1])} |" for title, _, form in _ROWS
    )
    kinds = dict.fromkeys([*both[0]["failures_seen"], *both[1]["failures_seen"]])
    failures = "\n".join(
        f"| {kind} | {both[0]['failures_seen'].get(kind, '-')} | {both[1]['failures_seen'].get(kind, '-')} |"
        for kind in kinds
    )
    told = {"stages": "\n".join(stages), "results": results, "failures": failures, "remarks": remarks}
    (target / "README.md").write_text(_TEMPLATE.read_text().format(**facts, **told))
