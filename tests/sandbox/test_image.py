"""Building an image through a real engine."""

from __future__ import annotations

import pytest

from tests.sandbox.boxes import SKELETON, needed, open_box
from wmrl_cli.errors import StageError, UnavailableError
from wmrl_cli.sandbox.container_engine import connect
from wmrl_cli.sandbox.image_build import FOLDER, build_image

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
