"""Runs one job from standard input in bubblewrap, as whoever started it: for the tests of a plain user."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from wmrl_cli.sandbox import open_sandbox
from wmrl_cli.sandbox.base import Job, Limits
from wmrl_cli.sandbox.local.bubblewrap import BubblewrapSandbox


def main() -> None:
    question = json.load(sys.stdin)
    box = open_sandbox("bubblewrap", scratch=Path(sys.argv[1]))
    assert isinstance(box, BubblewrapSandbox)
    if "preflight" in question:
        answer = asdict(box.preflight())
    else:
        job = question["job"]
        limits = Limits(**job.pop("limits"))
        result = box.run(Job(**{**job, "data_dir": Path(job["data_dir"])}, limits=limits))
        answer = {**asdict(result), "submission": None if result.submission is None else result.submission.hex()}
    json.dump(answer, sys.stdout)


main()
