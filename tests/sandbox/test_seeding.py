"""The same script with the same seed gives the same result; another seed gives another."""

from __future__ import annotations

import pytest

from tests.sandbox.boxes import open_box
from wmrl_cli.sandbox.base import Ending, Job, Limits

SCRIPT = """
import random
from sklearn.ensemble import RandomForestRegressor
import numpy as np
X = np.arange(40).reshape(20, 2)
model = RandomForestRegressor(3).fit(X, X[:, 0] ** 2)
print(random.random(), np.random.rand(), model.predict([[7, 8]])[0])
"""


@pytest.mark.parametrize("kind", ["unsafe-process", "bubblewrap"])
def test_a_run_can_be_repeated(kind, tmp_path):
    box = open_box(kind, tmp_path)
    data = tmp_path / "data"
    data.mkdir()

    def printed(seed: int) -> str:
        job = Job(job_id=f"seed-{seed}", script=SCRIPT, data_dir=data, limits=Limits(wall_s=60), seed=seed)
        result = box.run(job)
        assert result.ending is Ending.EXITED, result.stderr
        return result.stdout

    first = printed(7)
    assert len(first.split()) == 3
    assert printed(7) == first
    assert printed(8) != first
