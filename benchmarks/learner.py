"""One optimiser step of the learner beside TRL's GRPOTrainer: same tiny model, same batch, one run.

    pip install -e '.[cpu,trl]'
    python benchmarks/learner.py                        # a table: gradient difference, seconds, peak memory
    python benchmarks/learner.py --vocabulary 50000     # where the output layer dominates

TRL gets our weights through its public interface: `rollout_func` hands over fixed token ids with an `env_mask`,
and the reward function returns w_k (r - mean r) with `scale_rewards="none"`, from which TRL subtracts a group mean
that is already zero. The reference differs from the policy, so that the KL term has a gradient. Each side runs in
its own process with one torch thread; the first step warms up and gives the gradient, the others are timed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

KL, ENTROPY, CLIP, LEARNING_RATE = 0.04, 0.002, 0.2, 1e-6
RHO = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=4, help="groups in the batch; the first is executed")
    parser.add_argument("--size", type=int, default=4, help="trajectories in a group")
    parser.add_argument("--turns", type=int, default=3, help="turns of a trajectory")
    parser.add_argument("--reply", type=int, default=24, help="longest reply of a turn, tokens")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--vocabulary", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5, help="timed steps")
    parser.add_argument("--side", choices=("ours", "trl"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        found = {"ours": run_ours, "trl": run_trl}[options.side](options.folder, options.repeats)
        (options.folder / f"{options.side}.json").write_text(json.dumps(found))
    else:
        compare(options)


def compare(options: argparse.Namespace) -> None:
    """Write the model and the batch, run both sides one after the other, print the table."""
    import torch

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_models(folder, options)
        write_batch(folder, options)
        for side in ("ours", "trl"):
            command = [sys.executable, __file__, "--side", side, "--folder", name, "--repeats", str(options.repeats)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                sys.exit(f"{side} failed:\n{done.stderr}")
        ours, trl = (json.loads((folder / f"{side}.json").read_text()) for side in ("ours", "trl"))
        gradients = [torch.load(folder / f"{side}.pt") for side in ("ours", "trl")]
    difference = ((gradients[0] - gradients[1]).norm() / gradients[1].norm()).item()
    batch = f"{options.groups} groups of {options.size}, {options.turns} turns, {ours['tokens']} policy tokens"
    print(f"model: {ours['parameters']:,} weights, vocabulary {options.vocabulary:,}; batch: {batch}")
    print(f"KL to the reference: {ours['kl']:.4f} nats")
    print(f"gradient: relative difference {difference:.1e} (norms {ours['norm']:.6f} and {trl['norm']:.6f})\n")
    print(f"{'':28}{'ours':>12}{'TRL ' + trl['version']:>14}")
    for label, key, form in (
        ("seconds a step, median", "seconds", "{:.3f}"),
        ("processor seconds, median", "processor", "{:.3f}"),
        ("memory above start, MB", "memory", "{:.0f}"),
        ("peak memory, MB", "peak", "{:.0f}"),
    ):
        print(f"{label:28}{form.format(ours[key]):>12}{form.format(trl[key]):>14}")
    if not difference < 1e-4:
        sys.exit("the two gradients differ")


def write_models(folder: Path, options: argparse.Namespace) -> None:
    """A random policy, and a reference a little beside it, with a word-level tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=options.vocabulary,
            hidden_size=options.hidden,
            intermediate_size=3 * options.hidden,
            num_hidden_layers=options.layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=max(8, options.hidden // 4),
            initializer_range=0.05,
            tie_word_embeddings=True,
        )
    )
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(options.vocabulary)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w1", pad_token="w1")
    for name in ("policy", "reference"):
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.01 * torch.randn_like(parameter))


def write_batch(folder: Path, options: argparse.Namespace) -> None:
    """Token ids of every trajectory, its rewards, and advantages that are centred and weighted."""
    import numpy as np

    random = np.random.default_rng(0)
    variances = np.where(np.arange(options.groups) == 0, 1.0, RHO)
    weights = options.groups / variances / (1 / variances).sum()
    rows = []
    for group in range(options.groups):
        opening = random.integers(2, options.vocabulary, size=random.integers(8, 32)).tolist()
        rewards = random.uniform(size=options.size)
        for reward in rewards:
            completion: list[int] = []
            mask: list[int] = []
            for turn in range(options.turns):
                reply = random.integers(2, options.vocabulary, size=random.integers(4, options.reply + 1)).tolist()
                seen = random.integers(2, options.vocabulary, size=6).tolist() if turn < options.turns - 1 else []
                completion += [*reply, *seen]
                mask += [1] * len(reply) + [0] * len(seen)
            advantage = float(weights[group] * (reward - rewards.mean()))
            rows.append(
                {"group": group, "prompt": opening, "completion": completion, "mask": mask, "advantage": advantage}
            )
    (folder / "batch.json").write_text(json.dumps(rows))


def run_ours(folder: Path, repeats: int) -> dict[str, Any]:
    """The learner: old and reference log-probabilities, gradient, AdamW."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from wmrl_cli.learner.config import LearnerConfig
    from wmrl_cli.learner.learner import Learner
    from wmrl_cli.learner.sequences import TrainSequence

    rows = json.loads((folder / "batch.json").read_text())
    config = LearnerConfig(
        learning_rate=LEARNING_RATE, kl=KL, entropy=ENTROPY, clip=CLIP, grad_clip=1e9, micro_tokens=10**9
    )
    policy, reference = (AutoModelForCausalLM.from_pretrained(folder / name).eval() for name in ("policy", "reference"))
    learner = Learner(policy, reference, AutoTokenizer.from_pretrained(folder / "policy"), config)
    groups = 1 + max(row["group"] for row in rows)

    def sequences(logprobs: list[list[float]]) -> list[TrainSequence]:
        return [
            TrainSequence(
                ids=[*row["prompt"], *row["completion"]],
                policy_mask=[False] * len(row["prompt"]) + [bool(flag) for flag in row["mask"]],
                sampler_logprobs=sampled,
                advantage=row["advantage"],
                group_size=len(rows) // groups,
                group_id=str(row["group"]),
            )
            for row, sampled in zip(rows, logprobs, strict=True)
        ]

    blank = [[0.0] * (len(row["prompt"]) + len(row["completion"])) for row in rows]
    own = learner.prepare(sequences(blank), groups=groups).micro[0]
    order = sorted(range(len(rows)), key=lambda i: (-len(blank[i]), i))  # the one micro-batch holds the longest first
    for position, old_T in zip(order, own.old_BT, strict=True):
        blank[position] = old_T[: len(blank[position])].tolist()
    batch = sequences(blank)
    learner.steps = 1  # the reference is another one on purpose
    clock = Clock()
    learner.backward(learner.prepare(batch, groups=groups))
    gradient = torch.cat([parameter.grad.flatten().double() for parameter in learner.model.parameters()])
    torch.save(gradient, folder / "ours.pt")
    kl = learner.step(batch, groups=groups).kl
    for _ in range(repeats):
        clock.start()
        stats = learner.step(batch, groups=groups)
        clock.stop()
    return {
        **clock.report(),
        "norm": gradient.norm().item(),
        "tokens": stats.tokens,
        "parameters": sum(parameter.numel() for parameter in policy.parameters()),
        "kl": kl,
    }


def run_trl(folder: Path, repeats: int) -> dict[str, Any]:
    """TRL's trainer; the gradient is read before its optimiser acts, a step is its training step with rollout."""
    import torch
    import trl
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    rows = json.loads((folder / "batch.json").read_text())
    groups = 1 + max(row["group"] for row in rows)
    size = len(rows) // groups

    def rollout(prompts: list[str], trainer: GRPOTrainer) -> dict[str, Any]:
        ordered = []
        for position, prompt in enumerate(prompts):
            group = int(prompt.removeprefix("w"))
            ordered.append([row for row in rows if row["group"] == group][position % size])
        return {
            "prompt_ids": [row["prompt"] for row in ordered],
            "completion_ids": [row["completion"] for row in ordered],
            "logprobs": [[0.0] * len(row["completion"]) for row in ordered],
            "env_mask": [row["mask"] for row in ordered],
            "weighted": [row["advantage"] for row in ordered],
        }

    def weighted_reward(completions: list[str], weighted: list[float], **_: Any) -> list[float]:
        return weighted

    class Watch(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            clock.start()

        def on_pre_optimizer_step(self, *_: Any, model: Any = None, **__: Any) -> None:
            if not clock.steps:
                gradient = torch.cat([parameter.grad.flatten().double() for parameter in model.parameters()])
                torch.save(gradient, folder / "trl.pt")

        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock.stop()

    policy = AutoModelForCausalLM.from_pretrained(folder / "policy")
    policy.config._name_or_path = str(folder / "reference")  # where TRL reads its reference from
    trainer = GRPOTrainer(
        model=policy,
        reward_funcs=weighted_reward,
        args=GRPOConfig(
            output_dir=str(folder / "trl"),
            per_device_train_batch_size=len(rows),
            num_generations=size,
            max_completion_length=max(len(row["completion"]) for row in rows),
            max_steps=repeats + 1,
            learning_rate=LEARNING_RATE,
            lr_scheduler_type="constant",
            max_grad_norm=0.0,
            beta=KL,
            epsilon=CLIP,
            entropy_coef=ENTROPY,
            loss_type="grpo",
            scale_rewards="none",
            use_bias_correction_kl=False,
            gradient_checkpointing=False,
            shuffle_dataset=False,
            bf16=False,
            use_cpu=True,
            logging_steps=1,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_dict({"prompt": [f"w{group}" for group in range(groups)]}),
        processing_class=AutoTokenizer.from_pretrained(folder / "policy"),
        rollout_func=rollout,
        callbacks=[Watch()],
    )
    clock = Clock()
    trainer.train()
    clock.steps.pop(0)
    return {**clock.report(), "norm": torch.load(folder / "trl.pt").norm().item(), "version": trl.__version__}


class Clock:
    """Wall and processor seconds of steps, and memory from here on."""

    def __init__(self) -> None:
        self.memory = peak_mb()
        self.steps: list[tuple[float, float]] = []
        self.began = (0.0, 0.0)

    def start(self) -> None:
        self.began = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        self.steps.append((time.perf_counter() - self.began[0], time.process_time() - self.began[1]))

    def report(self) -> dict[str, float]:
        wall, processor = (statistics.median(column) for column in zip(*self.steps, strict=True))
        return {"seconds": wall, "processor": processor, "peak": peak_mb(), "memory": peak_mb() - self.memory}


def peak_mb() -> float:
    """Largest resident memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
