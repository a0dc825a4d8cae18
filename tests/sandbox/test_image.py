"""Building an image through a real engine."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.sandbox.boxes import PODMAN, SKELETON, needed, open_box
from wmrl_cli.errors import StageError, UnavailableError
from wmrl_cli.sandbox import open_sandbox
from wmrl_cli.sandbox.base import Ending, Job, Limits
from wmrl_cli.sandbox.container.engine import connect
from wmrl_cli.sandbox.container.image_build import FOLDER, build_image

pytestmark = pytest.mark.docker


@pytest.fixture
def tag(tmp_path):
    box = open_box("docker", tmp_path)
    name = "wmrl-test-image:1"
    yield name
    for image in box.engine.client.images.list(name):
        box.engine.client.images.remove(image.id, force=True)


def test_an_image_is_built_with_its_arguments_and_says_each_step(tmp_path, tag):
    (tmp_path / "Dockerfile").write_text(
        "ARG BASE=none\nFROM ${BASE}\nARG REQUIREMENTS=none\nCOPY ${REQUIREMENTS} /opt/list\n"
    )
    (tmp_path / "mine.txt").touch()
    said = []
    found = build_image(said.append, tag=tag, base=SKELETON, requirements="mine.txt", folder=tmp_path)
    assert connect(tag).image_id == found
    assert any("COPY" in line for line in said)


def test_a_step_that_fails_is_a_sentence_with_the_engines_words(tag):
    with pytest.raises(StageError, match="build step failed"):
        build_image(lambda line: None, tag=tag, base=SKELETON)  # ours needs a shell, which the skeleton lacks


@pytest.fixture(params=["docker", "podman"])
def imported(request, tmp_path):
    """A function that opens the backend on a skeleton image with further settings."""
    client, folder = open_box(request.param, tmp_path / "scratch").engine.client, Path(__file__).parents[2]
    made = []
    data = subprocess.run(["sh", str(folder / "scripts/ci-skeleton.sh")], capture_output=True, check=True).stdout

    def make(*changes):
        changes = ["LABEL wmrl.skeleton=1", *changes]
        said = client.api.import_image_from_data(data, changes=changes)
        made.append(json.loads(said.splitlines()[-1])["status"])
        with pytest.MonkeyPatch.context() as patch:
            if request.param == "podman":
                patch.setenv("DOCKER_HOST", PODMAN)
            return open_sandbox("docker", image=made[-1], scratch=tmp_path / "scratch")

    yield make
    for image in made:
        client.images.remove(image, force=True)


def test_what_an_image_would_start_by_itself_is_not_started(imported, tmp_path):
    box = imported('ENTRYPOINT ["/usr/bin/echo"]', 'CMD ["more"]', "USER 0", "WORKDIR /tmp")
    (tmp_path / "data").mkdir()
    result = box.run(Job(job_id="x", script="print('mine')", data_dir=tmp_path / "data", limits=Limits(wall_s=60)))
    assert (result.ending, result.stdout) == (Ending.EXITED, "mine\n")


def test_an_image_with_volumes_is_refused_because_nothing_bounds_them(imported):
    with pytest.raises(UnavailableError, match="has volumes, which no limit bounds: /data"):
        imported("VOLUME /data")


def test_the_shipped_environment_is_pinned():
    lines = [
        line for line in (FOLDER / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")
    ]
    assert len(lines) > 20 and all(line.count("==") == 1 for line in lines)


def test_the_shipped_environment_is_the_papers():
    pinned = dict(line.split("==") for line in (FOLDER / "requirements.txt").read_text().splitlines() if "==" in line)
    named = {name: pinned[name] for name in ("torch", "scikit-learn", "transformers")}
    assert named == {"torch": "2.12.0", "scikit-learn": "1.4.2", "transformers": "5.12.1"}
    assert int(pinned["pandas"].split(".")[0]) < 3, "scikit-learn 1.4 does not know pandas 3's text columns"


def test_without_an_engine_the_build_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    with pytest.raises(UnavailableError, match="could not build"):
        build_image(lambda line: None)


def test_needed_fails_in_continuous_integration_and_skips_elsewhere(monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception):
        needed("a reason")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception):
        needed("a reason")
