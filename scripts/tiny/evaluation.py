"""What the embedded model is worth: its own scripts, really executed, against what its experts said of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scripts.tiny.execution import run_scripts
from wmrl_cli.agent.parsing import extract_script
from wmrl_cli.engines.base import Sampling
from wmrl_cli.engines.chat import opening_ids
from wmrl_cli.engines.transformers_engine import TransformersEngine
from wmrl_cli.environment import Attempt, Outcome
from wmrl_cli.maths.fidelity import rank_correlations
from wmrl_cli.maths.outcomes import Status
from wmrl_cli.prompts.compact import CompactPack
from wmrl_cli.seeds import row_seed
from wmrl_cli.task import Task
from wmrl_cli.world_model import WorldModel

_DECODE_ROWS = 256


def open_engine(folder: Path) -> TransformersEngine:
    return TransformersEngine.open(str(folder), dtype="float32", device="cpu", batch_rows=_DECODE_ROWS)


def sample_scripts(folder: Path, seats: Sequence[Task], *, temperature: float, seed: int) -> list[str | None]:
    """One script a seat, written by the agent in `folder`; None where a reply held none."""
    engine, pack = open_engine(folder), CompactPack()
    prompts = [opening_ids(engine.tokenizer, pack.opening(task, ())) for task in seats]
    seeds = [row_seed(seed, task.task_id, number) for number, task in enumerate(seats)]
    completions = engine.generate(
        prompts, Sampling(max_new_tokens=pack.max_new_tokens, temperature=temperature), seeds=seeds
    )
    scripts = []
    for completion in completions:
        assert completion is not None, "a compact prompt always fits"
        text = engine.tokenizer.decode(completion.ids, skip_special_tokens=True)
        scripts.append(extract_script(text, completion.finish_reason))
    return scripts


def promising_scripts(folder: Path, seats: Sequence[Task], *, of: int, seed: int) -> list[str | None]:
    """One script a seat: of `of` that the agent writes, the one that the world model likes best.

    These are the scripts that training against the world model leads to, and among them are those that it
    overrates: they teach it more than others do.
    """
    many = [task for task in seats for _ in range(of)]
    scripts = sample_scripts(folder, many, temperature=1.0, seed=seed)
    attempts = [Attempt(task=task, script=script, seed=0) for task, script in zip(many, scripts, strict=True)]
    rewards = _rewards(WorldModel(open_engine(folder), CompactPack()).step(attempts)).reshape(-1, of)
    return [scripts[seat * of + int(best)] for seat, best in enumerate(rewards.argmax(axis=1))]


@dataclass(frozen=True)
class Trial:
    """Groups of the agent's scripts: what really came of them, and what the world model expected."""

    tasks: list[Task]  # one a script, a group's side by side
    groups: list[int]
    scripts: list[str | None]
    real: list[Outcome]
    predicted: list[Outcome]


def try_out(folder: Path, tasks: Sequence[Task], *, groups: int, group_size: int, slots: int, seed: int) -> Trial:
    """`groups` groups of `group_size` scripts a task, sampled at temperature 1, executed and judged."""
    seats = [task for task in tasks for _ in range(groups * group_size)]
    scripts = sample_scripts(folder, seats, temperature=1.0, seed=seed)
    attempts = [
        Attempt(task=task, script=script, seed=row_seed(seed, "execute", number))
        for number, (task, script) in enumerate(zip(seats, scripts, strict=True))
    ]
    world_model = WorldModel(open_engine(folder), CompactPack())
    predicted = world_model.step(attempts)
    real = run_scripts(attempts, slots)
    return Trial(seats, [number // group_size for number in range(len(seats))], scripts, real, predicted)


def report(trial: Trial) -> dict[str, Any]:
    """The trial in numbers; rewards lie in [0, 1], rates are shares."""
    statuses = [outcome.status.value for outcome in trial.real]
    counts = Counter(statuses)
    assert Status.LOST.value not in counts, "a lost run would bias every number"
    valid = [status == Status.VALID.value for status in statuses]
    real, predicted = _rewards(trial.real), _rewards(trial.predicted)
    order = rank_correlations(predicted, real, trial.groups)
    pairs = [
        0.5 if predicted[a] == predicted[b] else float((predicted[a] > predicted[b]) == (real[a] > real[b]))
        for a, b in combinations(range(len(real)), 2)
        if trial.groups[a] == trial.groups[b] and real[a] != real[b]
    ]
    chosen = [i for i, v in enumerate(valid) if v and trial.predicted[i].q is not None]
    quality = rank_correlations(
        [trial.predicted[i].q or 0.0 for i in chosen],
        [trial.real[i].q or 0.0 for i in chosen],
        [trial.tasks[i].task_id for i in chosen],
    )
    share_valid = np.mean([p.status is Status.VALID for p in trial.predicted])
    return {
        "scripts": len(real),
        "tasks": len({task.task_id for task in trial.tasks}),
        "distinct": len({(t.task_id, s) for t, s in zip(trial.tasks, trial.scripts, strict=True)}) / len(real),
        "valid": float(np.mean(valid)),
        "reward": float(real.mean()),
        "reward_sd": float(real.std()),
        "reward_sd_in_group": float(
            np.sqrt(np.mean([real[np.array(trial.groups) == g].var() for g in set(trial.groups)]))
        ),
        "q_of_valid": float(np.mean([o.q for o in trial.real if o.q is not None])),
        "statuses": {status: count / len(real) for status, count in counts.most_common()},
        "status_accuracy": float(
            np.mean([p.status.value == s for p, s in zip(trial.predicted, statuses, strict=True)])
        ),
        "status_majority": counts.most_common(1)[0][1] / len(real),
        "valid_accuracy": float(
            np.mean([(p.status is Status.VALID) == v for p, v in zip(trial.predicted, valid, strict=True)])
        ),
        "valid_predicted": float(share_valid),
        "spearman_in_group": float(np.nanmean(order)),
        "pair_accuracy": float(np.mean(pairs)),
        "quality_spearman_in_task": float(np.nanmean(quality)),
        "bias": float((predicted - real).mean()),
        "mae": float(np.abs(predicted - real).mean()),
        "failures_seen": _failures_seen(trial),
        "valid_by_task": {
            name: float(np.mean([v for v, t in zip(valid, trial.tasks, strict=True) if t.task_id == name]))
            for name in dict.fromkeys(task.task_id for task in trial.tasks)
        },
    }


def _rewards(outcomes: Sequence[Outcome]) -> npt.NDArray[np.float64]:
    return np.array([outcome.reward for outcome in outcomes], dtype=float)


def _failures_seen(trial: Trial) -> dict[str, str]:
    """By kind of failure: how many of the scripts that failed so the world model did not call valid."""
    seen: dict[str, list[bool]] = {}
    for real, predicted in zip(trial.real, trial.predicted, strict=True):
        if real.status is not Status.VALID:
            kind = real.error_class if real.status is Status.RUNTIME_ERROR and real.error_class else real.status.value
            seen.setdefault(kind, []).append(predicted.status is not Status.VALID)
    return {kind: f"{sum(hits)}/{len(hits)}" for kind, hits in sorted(seen.items(), key=lambda item: -len(item[1]))}
