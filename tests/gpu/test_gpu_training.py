"""Training on a real card: computation in bfloat16, the sampler and the learner agreeing, and a whole short run."""

from __future__ import annotations

import json

import torch

from tests.learner.cases import tiny_folder, trajectories
from wmrl_cli.__main__ import run
from wmrl_cli.engines.base import Sampling
from wmrl_cli.engines.models import resolve_model
from wmrl_cli.engines.transformers_engine import TransformersEngine
from wmrl_cli.learner.config import LearnerConfig
from wmrl_cli.learner.learner import Learner
from wmrl_cli.learner.sequences import TrainSequence

DEVICE = "cuda"


def test_a_step_in_bfloat16_moves_float32_weights(tmp_path):
    learner = Learner.build(tiny_folder(tmp_path / "model"), LearnerConfig(learning_rate=1e-3), device=DEVICE)
    before = [weight.detach().clone() for weight in learner.model.parameters()]
    stats = learner.step(trajectories((3, 3)), groups=2)
    assert learner.dtype is torch.bfloat16 and stats.updated and 0 < stats.grad_norm < float("inf")
    assert {weight.dtype for weight in learner.model.parameters()} == {torch.float32}
    assert any(not torch.equal(old, new) for old, new in zip(before, learner.model.parameters(), strict=True))


def test_what_the_sampler_says_of_its_own_words_is_what_the_learner_says():
    learner = Learner.build(resolve_model("tiny").location, LearnerConfig(), device=DEVICE)
    engine = TransformersEngine(learner.model, learner.tokenizer, compute=learner.dtype)
    prompt = tuple(engine.tokenizer.encode("Predict the target of this table."))
    drawn = engine.generate([prompt] * 4, Sampling(max_new_tokens=32), seeds=[1, 2, 3, 4])
    sequences = [
        TrainSequence.from_turns(
            [(prompt, one.ids, one.logprobs)], advantage=(-1.0) ** index, group_size=4, group_id="g", truncated=False
        )
        for index, one in enumerate(drawn)
        if one is not None
    ]
    assert len(sequences) == 4
    batch = learner.prepare(sequences, groups=1)
    assert batch.sampler_difference_max < 0.1  # nats; bfloat16 rounds a log-probability to about 0.01


def test_a_short_run_on_the_card(tmp_path, capsys):
    folder = tmp_path / "run"
    asked = ["train", "--model", "tiny", "--steps", "2", "--device", DEVICE, "--anchor-frac", "0.5"]
    assert run([*asked, "-o", str(folder), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2
    assert (folder / "model" / "model.safetensors").exists()
