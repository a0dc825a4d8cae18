"""A script's luck as a function of its seed: the same script with the same seed gives the same result again.

scikit-learn draws from numpy's global generator where a script names no `random_state`, and that generator
starts from the system's entropy. So the folder of a run holds a `sitecustomize` that seeds `random`, and
`numpy.random` once it is imported. It only makes runs repeatable: a script may seed as it likes, and what draws
from the system's entropy by itself (`numpy.random.default_rng()`) stays free.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = ".seed"  # below the work folder, where the script runs: the environment's PYTHONPATH

_SITECUSTOMIZE = '''\
"""Seeds the global generators from WMRL_SEED, so that a run of this script can be repeated."""
import os
import random
import sys
from importlib.machinery import PathFinder

seed = int(os.environ.get("WMRL_SEED", "0")) % 2**32
random.seed(seed)


class SeedNumpy:
    """Finds numpy.random as Python would, and seeds it when it has been loaded."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "numpy.random":
            return None
        sys.meta_path.remove(SeedNumpy)
        spec = PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def load_and_seed(module):
            load(module)
            module.seed(seed)

        spec.loader.exec_module = load_and_seed
        return spec


sys.meta_path.insert(0, SeedNumpy)
'''


def write_seeding(work: Path) -> None:
    """Put the `sitecustomize` into a run's work folder. Raises OSError."""
    folder = work / FOLDER
    folder.mkdir(mode=0o755)
    (folder / "sitecustomize.py").write_text(_SITECUSTOMIZE)
    (folder / "sitecustomize.py").chmod(0o644)
