"""What eight expert verdicts cost against one, with the shared part read once and read again for each.

    pip install -e '.[cpu]'
    python benchmarks/experts.py                 # the embedded model and its own prompt pack
    python benchmarks/experts.py --scripts 16 --script-tokens 600

All variants run in one process with one torch thread, interleaved, on the same random scripts; the ratios are of
medians of CPU seconds. `tree` reads all questions behind the script in one forward, `fork` copies the script's state
for each question (what linear attention needs), `none` reads the script again for each question. Before anything is
timed, the three are checked to give the same answers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from wmrl_cli.engines.models import resolve_model
from wmrl_cli.engines.transformers_engine import Share, TransformersEngine
from wmrl_cli.engines.weights import open_model
from wmrl_cli.prompts import get_pack

SHARES: tuple[Share, ...] = ("tree", "fork", "none")


@dataclass(frozen=True)
class Questions:
    """Token ids: what all experts read about each script, each question, and its answers."""

    prefixes: list[list[int]]
    suffixes: list[list[int]]
    choices: list[list[list[int]]]

    def first(self, count: int) -> Questions:
        return Questions(self.prefixes, self.suffixes[:count], self.choices[:count])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tiny", help="a model whose pack asks for one-token answers")
    parser.add_argument("--scripts", type=int, default=64)
    parser.add_argument("--script-tokens", type=int, default=200, help="tokens of the shared part, about")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    spec = resolve_model(options.model)
    model, tokenizer = open_model(spec.location, dtype="float32", device="cpu")
    questions = make_questions(tokenizer, spec.pack, options.scripts, options.script_tokens)
    engines = {share: TransformersEngine(model, tokenizer, share=share) for share in SHARES}
    check_equal(engines, questions)
    report(measure(engines, questions, options.repeats), questions)


def make_questions(tokenizer: Any, pack_name: str, scripts: int, tokens: int) -> Questions:
    """The pack's own questions behind random shared parts of about `tokens` tokens, no two of equal beginning."""
    pack = get_pack(pack_name)
    random = np.random.default_rng(0)
    vocabulary = len(tokenizer)
    prefixes = [
        random.integers(10, vocabulary, random.integers(tokens - 10, tokens + 11)).tolist() for _ in range(scripts)
    ]

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    suffixes = [encode(pack.judge_suffix(tokenizer, expert)) for expert in pack.experts]
    return Questions(prefixes, suffixes, [[encode(word) for word in expert.verdicts] for expert in pack.experts])


def check_equal(engines: dict[Share, TransformersEngine], questions: Questions) -> None:
    """Stops where sharing changes a log-probability by more than 1e-4."""
    part = Questions(questions.prefixes[:4], questions.suffixes, questions.choices)
    answers = {share: ask(engine, part) for share, engine in engines.items()}
    for share in SHARES:
        for row, plain in zip(answers[share], answers["none"], strict=True):
            for values, expected in zip(row, plain, strict=True):
                np.testing.assert_allclose(values, expected, atol=1e-4)


def ask(engine: TransformersEngine, questions: Questions) -> list[list[np.ndarray]]:
    return engine.choose(questions.prefixes, questions.suffixes, questions.choices)


def measure(
    engines: dict[Share, TransformersEngine], questions: Questions, repeats: int
) -> dict[tuple[Share, int], float]:
    """Median CPU seconds of each way of sharing with one question and with all; the first round warms up."""
    counts = (1, len(questions.suffixes))
    seconds: dict[tuple[Share, int], list[float]] = {(share, count): [] for share in SHARES for count in counts}
    for _ in range(repeats + 1):
        for (share, count), values in seconds.items():
            start = time.process_time()
            ask(engines[share], questions.first(count))
            values.append(time.process_time() - start)
    return {key: statistics.median(values[1:]) for key, values in seconds.items()}


def report(seconds: dict[tuple[Share, int], float], questions: Questions) -> None:
    experts = len(questions.suffixes)
    scripts = len(questions.prefixes)
    print(f"{scripts} scripts of about {mean_length(questions.prefixes)} tokens, ", end="")
    print(f"questions of about {mean_length(questions.suffixes)} tokens\n")
    print(f"{'sharing':8} {'1 expert':>10} {f'{experts} experts':>10} {f'{experts} : 1':>7} {'ms a script':>12}")
    for share in SHARES:
        one, all_ = seconds[share, 1], seconds[share, experts]
        print(f"{share:8} {one:9.3f}s {all_:9.3f}s {all_ / one:7.2f} {1000 * all_ / scripts:12.2f}")
    for share in SHARES[:2]:
        print(f"\n{experts} experts, none : {share} = {seconds['none', experts] / seconds[share, experts]:.1f}", end="")
    print()


def mean_length(texts: Sequence[Sequence[int]]) -> int:
    return round(statistics.mean(map(len, texts)))


if __name__ == "__main__":
    main()
