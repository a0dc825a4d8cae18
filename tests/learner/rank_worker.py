"""Two steps of the learner on however many ranks there are; run in process, or by `torchrun` as a script."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from wmrl_cli.learner import ranks
from wmrl_cli.learner.config import LearnerConfig
from wmrl_cli.learner.learner import Learner
from wmrl_cli.learner.sequences import TrainSequence

if __name__ == "__main__":
    from cases import trajectories
else:
    from .cases import trajectories


def share(batch: list[TrainSequence]) -> list[TrainSequence]:
    """This rank's part: the second of two has a single trajectory, and so fewer passes than the first."""
    if ranks.world() == 1:
        return batch
    return batch[:-1] if ranks.is_first() else batch[-1:]


def two_steps(model: Path, start: Path | None, out: Path, seed: int) -> None:
    """Leaves `out`/checkpoint, `out`/model, each step's gradient before clipping, and its numbers."""
    learner = Learner.build(model, LearnerConfig(learning_rate=1e-3, micro_tokens=90), device="cpu")
    if start:
        learner.load(start)
    gradients, stats = [], []
    for step in range(2):
        batch = share(trajectories((3, 4, 2), seed=seed + step))
        learner.backward(learner.prepare(batch, groups=3))
        parts = [ranks.whole(parameter.grad).flatten() for parameter in learner.model.parameters()]
        gradients.append(torch.cat(parts))
        stats.append(asdict(learner.step(batch, groups=3)))
    sampled = dict(learner.sampler.named_parameters())
    follows = all(
        torch.equal(sampled[name], ranks.whole(weight.detach())) for name, weight in learner.model.named_parameters()
    )
    tied = learner.model.get_output_embeddings().weight is learner.model.get_input_embeddings().weight
    learner.save(out / "checkpoint")
    learner.export(out / "model")
    if ranks.is_first():
        torch.save(gradients, out / "gradients.pt")
        (out / "numbers.json").write_text(
            json.dumps({"ranks": ranks.world(), "tied": tied, "follows": follows, "stats": stats})
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    for model, start, out, seed in json.loads(sys.argv[1]):
        two_steps(Path(model), Path(start) if start else None, Path(out), seed)
