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


def on_two_ranks(model: Path, start: Path | None, out: Path, seed: int) -> None:
    worker = str(Path(__file__).with_name("rank_worker.py"))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", worker]
    done = subprocess.run(
        [*command, str(model), str(start or ""), str(out), str(seed)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr


def results(out: Path) -> tuple[list[torch.Tensor], torch.Tensor, dict]:
    weights = load_file(out / "model" / "model.safetensors")
    whole = torch.cat([weights[name].flatten() for name in sorted(weights)])
    return torch.load(out / "gradients.pt"), whole, json.loads((out / "numbers.json").read_text())


def assert_equal(found: Path, expected: Path, bound: float) -> None:
    gradients, weights, numbers = results(found)
    other_gradients, other_weights, other_numbers = results(expected)
    assert (numbers["ranks"], other_numbers["ranks"]) == (2, 1)
    assert numbers["tied"]
    for gradient, other in zip(gradients, other_gradients, strict=True):
        assert (gradient - other).norm() < bound * other.norm()
    assert (weights - other_weights).norm() < bound * other_weights.norm()
    for ours, theirs in zip(numbers["stats"], other_numbers["stats"], strict=True):
        ours.pop("seconds"), theirs.pop("seconds")
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_two_ranks_equal_one_and_a_checkpoint_moves_between_them(architecture, tmp_path):
    model = tiny_folder(tmp_path / "source", architecture)
    on_two_ranks(model, None, tmp_path / "two", seed=0)
    two_steps(model, None, tmp_path / "one", seed=0)
    assert_equal(tmp_path / "two", tmp_path / "one", 1e-6)
    two_steps(model, tmp_path / "two" / "checkpoint", tmp_path / "two-one", seed=2)
    on_two_ranks(model, tmp_path / "two-one" / "checkpoint", tmp_path / "two-one-two", seed=4)
    two_steps(model, tmp_path / "one" / "checkpoint", tmp_path / "one-one", seed=2)
    two_steps(model, tmp_path / "one-one" / "checkpoint", tmp_path / "one-one-one", seed=4)
    assert_equal(tmp_path / "two-one-two", tmp_path / "one-one-one", 1e-4)
