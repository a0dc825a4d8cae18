"""The shipped folder: half-precision weights, tokenizer, and a card whose every number was measured on them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_TEMPLATE = """\
---
license: apache-2.0
library_name: transformers
pipeline_tag: text-generation
---
# tiny: an agent and a world model in one million parameters

A Qwen3-architecture causal language model of {parameters:.2f} million parameters ({layers} layers, width {width}, {vocabulary} \
tokens), made so that WMRL can be tried, tested and demonstrated on two processor cores. It plays both roles through the prompt \
pack `compact`: it writes scikit-learn scripts for small prediction tasks, and it answers eight experts' questions about such \
scripts with one token each. It is of no use for anything else, and knows nothing but the grammar it was trained on.

## How it was made
`python -m scripts.tiny.build --work DIR` rebuilds it from nothing. A grammar wrote scripts, good and bad, for {train_tasks} \
training tasks of the suite `offline` and {variants} random variants of their data sets; all of them were **really executed** \
(fork server, {cpu_limit:g} s of processor time), and the labels are what execution showed: the exception's class, the time-out, \
the refused submission, the position on the leaderboard. Held-out data sets were never touched.

| stage | scripts executed for labels | steps | script loss | verdict loss |
|---|---|---|---|---|
{stages}

The agent also learned from imagined tasks with random column names, whose scripts were not executed and never repeat; scripts \
that the agent itself wrote taught the world model only. Losses are in nats a token, means of the last hundred steps.

## What it is worth
Scripts that the agent wrote at temperature 1, in groups of {group_size}, really executed and judged by the shipped weights as \
world model: `python -m scripts.tiny.build --work DIR` ends with this measurement. Training tasks were seen in training, \
held-out tasks are other data sets.

| | training tasks | held-out tasks |
|---|---|---|
{results}

Failures that the world model saw (it did not call the script valid), by what really happened:

| | training tasks | held-out tasks |
|---|---|---|
{failures}

{remarks}"""

_ROWS: Sequence[tuple[str, str, str]] = (
    ("scripts / tasks", "scripts", "{scripts} / {tasks}"),
    ("different scripts", "distinct", "{distinct:.0%}"),
    ("valid", "valid", "{valid:.1%}"),
    ("mean reward (standard deviation; inside groups)", "reward", "{reward:.3f} ({reward_sd:.2f}; {reward_sd_in_group:.2f})"),
    ("mean leaderboard position of valid scripts", "q_of_valid", "{q_of_valid:.3f}"),
    ("world model: valid or not, accuracy", "valid_accuracy", "{valid_accuracy:.1%}"),
    ("world model: status accuracy (always the commonest)", "status_accuracy", "{status_accuracy:.1%} ({status_majority:.1%})"),
    ("Spearman correlation inside groups", "spearman_in_group", "{spearman_in_group:.3f}"),
    ("pairs inside groups in the right order", "pair_accuracy", "{pair_accuracy:.1%}"),
    ("Spearman correlation of position, valid scripts of a task", "quality_spearman_in_task", "{quality_spearman_in_task:.3f}"),
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


def write_card(target: Path, facts: Mapping[str, Any], stages: Sequence[str], reports: Mapping[str, Any], remarks: str) -> None:
    """Write `target`/README.md from the measured reports of the splits `train` and `held_out`."""
    both = (reports["train"], reports["held_out"])
    results = "\n".join(f"| {title} | {form.format(**both[0])} | {form.format(**both[1])} |" for title, _, form in _ROWS)
    kinds = dict.fromkeys([*both[0]["failures_seen"], *both[1]["failures_seen"]])
    failures = "\n".join(f"| {kind} | {both[0]['failures_seen'].get(kind, '-')} | {both[1]['failures_seen'].get(kind, '-')} |" for kind in kinds)
    text = _TEMPLATE.format(stages="\n".join(stages), results=results, failures=failures, remarks=remarks, **facts)
    (target / "README.md").write_text(text)
