"""A run folder as training writes it, from drawn scores instead of models: what the report's tests read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from wmrl_cli import tables
from wmrl_cli.maths.online import OnlineCalibrator, PairGroup
from wmrl_cli.training.config import TrainConfig
from wmrl_cli.training.run_folder import RunFolder
from wmrl_cli.training.step_metrics import metrics_row

GROUP = 4


class NoLearner:
    """Saves nothing."""

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True)

    def load(self, folder: Path) -> None: ...


def make_run(
    folder: Path, *, steps: int = 12, groups: int = 4, anchors: int = 1, bias: float = 0.2, seed: int = 0
) -> Path:
    """Write a run of `steps` steps in which the world model is `bias` too high; `anchors` of the groups are executed."""
    rng = np.random.default_rng(seed)
    config = TrainConfig(
        steps=steps, groups_per_step=groups, group_size=GROUP, anchor_frac=anchors / groups, checkpoint_every=1
    )
    calibrator = OnlineCalibrator(config.calibration.__class__(min_pairs=12, refit_every=4))
    with RunFolder(folder, config) as run:
        for step in range(steps):
            real = np.clip(rng.choice([0.1, 0.2, 0.6, 0.8], (groups, GROUP)) + 0.01 * step, 0, 1)
            predicted = np.clip(real + bias + 0.1 * rng.standard_normal(real.shape), 0, 1)
            pairs = [
                PairGroup(
                    group_id=f"{step}-{index}",
                    task_id=f"task{index}",
                    trajectory_ids=[f"{step}-{index}-{member}" for member in range(GROUP)],
                    predicted=predicted[index].tolist(),
                    real=real[index].tolist(),
                    status_predicted=["valid"] * GROUP,
                    status_real=["valid" if r > 0.5 else "runtime_error" for r in real[index]],
                )
                for index in range(anchors if anchors < groups else 0)
            ]
            rho = calibrator.rho
            observed = calibrator.observe(step, pairs)
            metrics = metrics_row(
                step, {**observed.metrics, **step_values(step, predicted, real, groups, anchors, rho)}
            )
            scores = score_rows(step, predicted, real, anchors, groups)
            run.commit(
                step, {"trajectories": [], "scores": scores, "anchor_pairs": observed.records, "metrics": [metrics]}
            )
            run.write_json("calibration.json", calibrator.to_json())
    return folder


def step_values(step: int, predicted: Any, real: Any, groups: int, anchors: int, rho: float) -> dict[str, Any]:
    simulated = anchors < groups
    return {
        "anchor_share_asked": anchors / groups,
        "anchor_share_realised": anchors / groups,
        "groups": groups,
        "anchors": anchors,
        "trajectories": groups * GROUP,
        "lost_world_model": 0,
        "lost_sandbox": 1 if step == 0 else 0,
        "reward_raw": float(predicted.mean()) if simulated else None,
        "reward_calibrated": float(predicted.mean()) if simulated else None,
        "reward_real": float(real[:anchors].mean()) if anchors else None,
        "weight_executed": rho if anchors else None,
        "weight_simulated": 1.0 if simulated else None,
        "dead_share_executed": 0.0 if anchors else None,
        "dead_share_simulated": 0.25 if simulated else None,
        "kl": 0.001 * step,
        "entropy": 1.5 - 0.01 * step,
        "gradient_norm": 0.3,
        "seconds_generate": 1.0,
        "seconds_simulate": 0.5 if simulated else 0.0,
        "seconds_wait": 0.25,
        "seconds_train": 1.0,
        "seconds_step": 3.0,
        "scripts_executed": anchors * GROUP,
        "scripts_simulated": groups * GROUP if simulated else 0,
        "seconds_per_execution": 2.0 if anchors else None,
        "seconds_if_all_executed": groups * GROUP * 2.0 / 2 if anchors else None,
    }


def score_rows(step: int, predicted: Any, real: Any, anchors: int, groups: int) -> list[dict[str, Any]]:
    rows = []
    for scorer, values, count in (("world_model", predicted, groups), ("sandbox", real, anchors)):
        for index in range(count if scorer == "sandbox" or anchors < groups else 0):
            for member in range(GROUP):
                reward = float(values[index, member])
                rows.append(score_row(step, index, member, scorer, reward))
    return rows


def score_row(step: int, index: int, member: int, scorer: str, reward: float) -> dict[str, Any]:
    empty = {field.name: None for field in tables.SCORES.schema}
    return {
        **empty,
        "trajectory_id": f"{step}-{index}-{member}",
        "turn": 1,
        "group_id": f"{step}-{index}",
        "task_id": f"task{index}",
        "step": step,
        "scorer": scorer,
        "status": "valid" if reward > 0.5 else "runtime_error",
        "reward": reward,
        "verdicts": [],
        "feedback": "",
        "backend": "made",
        "enforcement": "",
        "cached": False,
        "detail": "",
    }


def make_evaluations(folder: Path, *, gain: float = 0.1) -> None:
    """Write before and after in `folder`: four tasks, eight trajectories each; after is `gain` higher."""
    for name, extra in (("before", 0.0), ("after", gain)):
        rows = [
            {
                "policy": name,
                "policy_digest": name,
                "task_id": f"held{task}",
                "category": "tabular",
                "split": "held_out",
                "trajectory_id": f"{task}-{member}",
                "reward": 0.5 + 0.05 * task + extra,
                "q": 0.1 * task + extra,
                "status": "valid",
                "best_turn": 1,
                "raw_metric": 0.5,
                "wall_s": 1.0,
            }
            for task in range(4)
            for member in range(8)
        ]
        table: pa.Table = tables.rows_to_table(tables.EVALUATION, rows)
        tables.write_table(tables.EVALUATION, table, folder / "evaluation" / f"{name}.parquet", provenance={})
