"""Weights spread over two processes (FSDP2 over gloo) against one process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from .cases import ARCHITECTURES, tiny_folder
from .rank_worker import two_steps

pytestmark = pytest.mark.slow


def on_two_ranks(*jobs: tuple[Path, Path | None, Path, int]) -> None:
    """`two_steps` for each job, in one launch."""
    worker = str(Path(__file__).with_name("rank_worker.py"))
    plan = json.dumps([[str(model), str(start or ""), str(out), seed] for model, start, out, seed in jobs])
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", worker, plan],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr


def results(out: Path) -> tuple[list[torch.Tensor], torch.Tensor, dict]:
    weights = load_file(out / "model" / "model.safetensors")
    whole = torch.cat([weights[name].flatten() for name in sorted(weights)])
    return torch.load(out / "gradients.pt"), whole, json.loads((out / "numbers.json").read_text())


def assert_equal(found: Path, expected: Path, *, ranks: int, first: float = 1e-6) -> None:
    gradients, weights, numbers = results(found)
    other_gradients, other_weights, other_numbers = results(expected)
    assert (numbers["ranks"], other_numbers["ranks"]) == (ranks, 1)
    assert numbers["tied"]
    assert numbers["follows"], "what an engine samples from is not the policy"
    for step, (gradient, other) in enumerate(zip(gradients, other_gradients, strict=True)):
        bound = first if step == 0 else 1e-5  # AdamW divides by a gradient's size, and so enlarges rounding
        assert (gradient - other).norm() < bound * other.norm()
    assert (weights - other_weights).norm() < 1e-5 * other_weights.norm()
    for ours, theirs in zip(numbers["stats"], other_numbers["stats"], strict=True):
        ours.pop("seconds"), theirs.pop("seconds")
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)


def test_two_ranks_equal_one_and_checkpoints_move_between_them(tmp_path):
    jobs = []
    for architecture in ARCHITECTURES:
        home = tmp_path / architecture
        model = tiny_folder(home / "source", architecture)
        two_steps(model, None, home / "one", seed=0)
        two_steps(model, home / "one" / "checkpoint", home / "one-one", seed=2)
        jobs += [(model, None, home / "two", 0), (model, home / "one" / "checkpoint", home / "one-two", 2)]
    on_two_ranks(*jobs)
    for architecture in ARCHITECTURES:
        home = tmp_path / architecture
        two_steps(home / "source", home / "two" / "checkpoint", home / "two-one", seed=2)
        assert_equal(home / "two", home / "one", ranks=2)
        assert_equal(home / "one-two", home / "one-one", ranks=2)
        assert_equal(home / "two-one", home / "one-one", ranks=1, first=1e-5)
