"""wmrl doctor: what this machine can run."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from wmrl_cli import console
from wmrl_cli.cli import options

BuildImage = Annotated[
    bool, typer.Option("--build-image", help="Build the image that the docker sandbox uses [default: only look].")
]
Base = Annotated[
    str | None, typer.Option("--base", metavar="IMAGE", help="Base of that image [default: the Dockerfile's].")
]
ReleaseGpu = Annotated[
    str | None,
    typer.Option(
        "--release-gpu",
        metavar="SHARE",
        help="End the quarantine of a GPU share [default: only show which are in one].",
    ),
]


def doctor(
    build_image: BuildImage = False,
    base: Base = None,
    release_gpu: ReleaseGpu = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Say what this machine can run and what is missing

    Looks at packages, models, sandboxes (with a real probe of what each enforces), cores and disk. Exit code 0
    where `wmrl train` can run, 4 where it cannot.

    Examples:

        wmrl doctor --json

        wmrl doctor --build-image
    """
    if build_image:
        _build(base, as_json)
        return
    if release_gpu:
        _release(release_gpu, as_json)
        return
    from wmrl_cli.doctor import examine, main_job_runs

    console.note("looking at this machine, some seconds")
    findings = examine()
    runs = main_job_runs(findings)
    result = {"main_job_runs": runs, "findings": [asdict(found) for found in findings]}
    rows = [
        (found.part, found.name, "yes" if found.ok else "NO" if found.needed else "no", found.words)
        for found in findings
    ]
    console.emit(result, as_json=as_json, render=lambda: console.table(["part", "name", "there", "found"], rows))
    for found in findings:
        if not found.ok and found.advice:
            console.note(f"{found.name}: {found.advice}")
    if not runs:
        console.error(
            "`wmrl train` cannot run here", "see the rows that say NO, and that one of docker and bubblewrap is there"
        )
        raise typer.Exit(4)
    console.note("`wmrl train` can run here")


def _release(share: str, as_json: bool) -> None:
    from wmrl_cli.sandbox.gpu.leases import release
    from wmrl_cli.sandbox.gpu.opening import table_path

    release(table_path(), share)
    console.emit({"released": share}, as_json=as_json)


def _build(base: str | None, as_json: bool) -> None:
    from wmrl_cli.sandbox.container import image_build

    image = image_build.build_image(console.note, base=base)
    console.emit({"image": image_build.TAG, "id": image}, as_json=as_json)
