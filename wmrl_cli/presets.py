"""Settings that go with a model: each preset replaces some of the defaults, a file or a flag replaces both.

The embedded model is three orders of magnitude smaller than the paper's: it needs a larger learning rate, and a
run of a few dozen steps would never leave the paper's warm-up of 200 pairs. docs/decisions.md has the measurements.
"""

from __future__ import annotations

from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "steps": 30,
        "learner": {"learning_rate": 3e-4, "warmup_steps": 5},
        "calibration": {"min_pairs": 64, "refit_every": 16},
        "sandbox": {"wall_s": 30.0, "cpu_s": 6.0, "memory_gib": 1.0},
    },
    "paper": {
        "rollout": {"turns": 4, "max_new_tokens": 4096},
        "sandbox": {
            "wall_s": 1200.0,
            "memory_gib": 32.0,
            "cpus": 8.0,
            "processes": 1024,
            "disk_gib": 20.0,
            "file_gib": 10.0,
            "tmp_gib": 2.0,
            "shm_gib": 8.0,
        },
    },
}
