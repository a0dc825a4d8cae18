"""Checks that only a real GPU can answer: `python -m pytest tests/gpu` on a machine that has one."""

from __future__ import annotations

import shutil

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = None
    if not torch.cuda.is_available():
        missing = "torch sees no GPU"
    elif shutil.which("nvidia-smi") is None:
        missing = "`nvidia-smi` is not installed"
    for item in items:
        if "/tests/gpu/" in str(item.path):
            item.add_marker(pytest.mark.gpu)
            if missing:
                item.add_marker(pytest.mark.skip(reason=missing))
