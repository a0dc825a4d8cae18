"""Real execution of many scripts in the fork server, and what came of them as labels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from scripts.tiny.sequences import Labelled
from wmrl_cli.benchmarks.execution import SandboxEnvironment
from wmrl_cli.environment import Attempt, Outcome
from wmrl_cli.maths.outcomes import RewardLadder
from wmrl_cli.prompts.compact import facts_of, header
from wmrl_cli.sandbox.base import Limits
from wmrl_cli.sandbox.local.unsafe_fork import ForkSandbox
from wmrl_cli.seeds import row_seed
from wmrl_cli.task import Task

# Without the imports, which take a fresh process some 1.5 s: the suite's scripts get 6 s there.
LIMITS = Limits(wall_s=60.0, cpu_s=4.5)
_CHUNK = 200


def run_scripts(attempts: Sequence[Attempt], slots: int) -> list[Outcome]:
    """Outcomes in order; a line on standard error every few hundred scripts."""
    outcomes: list[Outcome] = []
    with ForkSandbox() as sandbox:
        environment = SandboxEnvironment(sandbox, LIMITS, RewardLadder(), slots)
        for first in range(0, len(attempts), _CHUNK):
            outcomes += environment.step(attempts[first : first + _CHUNK])
            print(f"executed {len(outcomes)}/{len(attempts)}", flush=True)
    return outcomes


def label(scripts: Sequence[tuple[Task, str | None]], *, by_agent: bool, slots: int, seed: int = 0) -> list[Labelled]:
    """The scripts with what execution showed, without those that hold no script."""
    attempts = [
        Attempt(task=task, script=script, seed=row_seed(seed, task.task_id, script))
        for task, script in scripts
        if script is not None
    ]
    headers = {task.task_id: header(facts_of(task)) for task, _ in scripts}
    return [
        Labelled(
            task_id=attempt.task.task_id,
            header=headers[attempt.task.task_id],
            script=attempt.script or "",
            status=outcome.status.value,
            error_class=outcome.error_class,
            q=outcome.q,
            by_agent=by_agent,
            raw_metric=outcome.raw_metric,
            cpu_s=outcome.cpu_s,
        )
        for attempt, outcome in zip(attempts, run_scripts(attempts, slots), strict=True)
    ]


def save(examples: Iterable[Labelled], path: Path) -> None:
    path.write_text("".join(json.dumps(asdict(example)) + "\n" for example in examples))


def load(path: Path) -> list[Labelled]:
    return [Labelled(**json.loads(line)) for line in path.read_text().splitlines()]
