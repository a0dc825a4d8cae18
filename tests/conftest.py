"""Settings of every test: no deadline on a machine that may be busy, the same examples in every run of CI."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("laptop", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "laptop")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # many small models: more threads only wait for each other
