"""Build the embedded model `tiny` from nothing: tasks, labels by execution, joint training, on-policy rounds, card.

    python -m scripts.tiny.build --work /tmp/tiny            # about an hour on two cores
    python -m scripts.tiny.build --work /tmp/tiny --until round-0

Every step leaves its result in the work folder and is skipped where that is already there, so an
interrupted build goes on with the same command. The last step writes wmrl_cli/embedded/tiny.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

os.environ.setdefault("OMP_NUM_THREADS", "1")

from scripts.tiny import execution
from scripts.tiny.card import ship_weights, write_card
from scripts.tiny.evaluation import promising_scripts, report, sample_scripts, try_out
from scripts.tiny.grammar import write_script
from scripts.tiny.tokens import train_tokenizer
from scripts.tiny.training import TrainConfig, train
from scripts.tiny.variants import build_variants
from wmrl_cli.benchmarks.offline import prepare_offline
from wmrl_cli.benchmarks.suites import load_tasks
from wmrl_cli.engines.models import EMBEDDED
from wmrl_cli.prompts.compact import facts_of
from wmrl_cli.tables import TASKS, provenance, rows_to_table, write_table
from wmrl_cli.task import HELD_OUT, TRAIN, Task

VOCABULARY, TOKENIZER_TEXTS = 2048, 4000
VARIANTS = 110
SCRIPTS_A_TASK, SCRIPTS_A_VARIANT = 50, 16
SAMPLES_A_TASK, SAMPLES_A_VARIANT = 80, 8  # of the agent's own, a round
FIRST = TrainConfig(steps=1600)
LATER = TrainConfig(steps=1300, learning_rate=2e-3, labelled=12, imagined=24)
ROUNDS = 1
GROUP = 8  # scripts of a group when the model is measured, as in training by RL


@dataclass(frozen=True)
class Build:
    """Paths and steps of one build."""

    work: Path
    processes: int
    seed: int

    def suite(self) -> None:
        prepare_offline(self.work / "suite")

    def variants(self) -> None:
        root = self.work / "variants"
        tasks = build_variants(VARIANTS, root, self.seed)
        table = rows_to_table(TASKS, [task.to_row() for task in tasks])
        write_table(TASKS, table, root / "tasks.parquet", provenance=provenance("tiny-variants"))

    def tokenizer(self) -> None:
        train_tokenizer(VOCABULARY, texts=TOKENIZER_TEXTS, seed=self.seed).save_pretrained(self.work / "tokenizer")

    def grammar(self) -> None:
        """Scripts of the grammar, executed."""
        random = Random(self.seed + 1)
        scripts = [
            (task, write_script(facts_of(task), random))
            for tasks, count in ((self.train_tasks(), SCRIPTS_A_TASK), (self.variant_tasks(), SCRIPTS_A_VARIANT))
            for task in tasks
            for _ in range(count)
        ]
        random.shuffle(scripts)
        execution.save(execution.label(scripts, by_agent=False, slots=self.processes), self.work / "grammar.jsonl")

    def samples(self, number: int) -> None:
        """The last agent's scripts, executed: as it writes them, more greedily, and the world model's choice."""
        agent, scripts = self.round(number - 1), list[tuple[Task, str | None]]()
        for share, write in (
            (0.5, lambda seats: sample_scripts(agent, seats, temperature=1.0, seed=number)),
            (0.2, lambda seats: sample_scripts(agent, seats, temperature=0.7, seed=number)),
            (0.3, lambda seats: promising_scripts(agent, seats, of=4, seed=number)),
        ):
            for tasks, count in ((self.train_tasks(), SAMPLES_A_TASK), (self.variant_tasks(), SAMPLES_A_VARIANT)):
                seats = [task for task in tasks for _ in range(round(count * share))]
                scripts += zip(seats, write(seats), strict=True)
        execution.save(
            execution.label(scripts, by_agent=True, slots=self.processes), self.work / f"agent-{number}.jsonl"
        )

    def training(self, number: int) -> None:
        config = FIRST if number == 0 else LATER
        examples = execution.load(self.work / "grammar.jsonl")
        for earlier in range(1, number + 1):
            examples += execution.load(self.work / f"agent-{earlier}.jsonl")
        start = self.round(number - 1) if number else None
        config = TrainConfig(**{**vars(config), "processes": self.processes, "seed": self.seed + number})
        train(config, self.work / "tokenizer", examples, self.round(number), start)

    def ship(self) -> None:
        ship_weights(self.round(ROUNDS), self.work / "tiny")

    def evaluate(self) -> None:
        """The shipped weights on tasks of both splits, as `report` numbers."""
        held_out = [task for task in self.suite_tasks() if task.split == HELD_OUT]
        reports = {}
        for split, tasks, groups in ((TRAIN, self.train_tasks(), 3), (HELD_OUT, held_out, 6)):
            trial = try_out(
                self.work / "tiny", tasks, groups=groups, group_size=GROUP, slots=self.processes, seed=self.seed + 99
            )
            reports[split] = report(trial)
            print(json.dumps(reports[split], indent=1), flush=True)
        (self.work / "report.json").write_text(json.dumps(reports, indent=1) + "\n")

    def embed(self) -> None:
        """Write the card beside the weights and copy all into the package."""
        trained = [json.loads((self.round(number) / "training.json").read_text()) for number in range(ROUNDS + 1)]
        config = json.loads((self.work / "tiny" / "config.json").read_text())
        facts = {
            "parameters": (self.work / "tiny" / "model.safetensors").stat().st_size / 2 / 1e6,
            "layers": config["num_hidden_layers"],
            "width": config["hidden_size"],
            "vocabulary": config["vocab_size"],
            "train_tasks": len(self.train_tasks()),
            "variants": VARIANTS,
            "cpu_limit": execution.LIMITS.cpu_s,
            "group_size": GROUP,
        }
        stages = [
            f"| {'grammar' if number == 0 else f'round {number}, own scripts added'} "
            f"| {row['executed_scripts']} | {row['steps']} | {row['script_loss']:.3f} | {row['verdict_loss']:.3f} |"
            for number, row in enumerate(trained)
        ]
        remarks = Path(__file__).with_name("remarks.md").read_text()
        write_card(self.work / "tiny", facts, stages, json.loads((self.work / "report.json").read_text()), remarks)
        shutil.rmtree(EMBEDDED, ignore_errors=True)
        shutil.copytree(self.work / "tiny", EMBEDDED)

    def round(self, number: int) -> Path:
        return self.work / f"round-{number}"

    def train_tasks(self) -> list[Task]:
        return [task for task in self.suite_tasks() if task.split == TRAIN]

    def suite_tasks(self) -> list[Task]:
        return load_tasks(self.work / "suite" / "tasks.parquet", verify=False)

    def variant_tasks(self) -> list[Task]:
        return load_tasks(self.work / "variants" / "tasks.parquet", verify=False)


def steps(build: Build) -> dict[str, tuple[Path, Callable[[], None]]]:
    """The steps by name, in order, with the file or folder that shows that one is done."""
    plan: dict[str, tuple[Path, Callable[[], None]]] = {
        "suite": (build.work / "suite" / "tasks.parquet", build.suite),
        "variants": (build.work / "variants" / "tasks.parquet", build.variants),
        "tokenizer": (build.work / "tokenizer", build.tokenizer),
        "grammar": (build.work / "grammar.jsonl", build.grammar),
        "round-0": (build.round(0), lambda: build.training(0)),
    }
    for number in range(1, ROUNDS + 1):
        plan[f"agent-{number}"] = (build.work / f"agent-{number}.jsonl", lambda n=number: build.samples(n))  # type: ignore[misc]
        plan[f"round-{number}"] = (build.round(number), lambda n=number: build.training(n))  # type: ignore[misc]
    plan["ship"] = (build.work / "tiny", build.ship)
    plan["evaluate"] = (build.work / "report.json", build.evaluate)
    plan["embed"] = (build.work / "tiny" / "README.md", build.embed)
    return plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of the intermediate results")
    parser.add_argument("--processes", type=int, default=2, help="processor cores to use")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--until", default=None, help="the last step to do; default: all")
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)
    build = Build(arguments.work, arguments.processes, arguments.seed)
    for name, (result, work) in steps(build).items():
        if not result.exists():
            print(f"--- {name}", flush=True)
            work()
        if name == arguments.until:
            return


if __name__ == "__main__":
    main()
