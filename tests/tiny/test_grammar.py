"""Imagined tasks and the scripts of the grammar."""

import ast
from random import Random

import pytest

from scripts.tiny.grammar import SLIPS, write_script
from scripts.tiny.imagined import imagine
from wmrl_cli.prompts.compact import header


@pytest.fixture(scope="module")
def written():
    random = Random(11)
    return [(facts := imagine(random), write_script(facts, random)) for _ in range(600)]


def parses(script: str) -> bool:
    try:
        ast.parse(script)
    except SyntaxError:
        return False
    return True


def test_one_seed_writes_one_script():
    facts = imagine(Random(1))
    assert facts == imagine(Random(1))
    assert write_script(facts, Random(2)) == write_script(facts, Random(2)) != write_script(facts, Random(3))


def test_names_in_a_task_are_different(written):
    for facts, _ in written:
        names = [facts.id_column, facts.target, *facts.numbers, *facts.strings]
        assert len(names) == len(set(names)), header(facts)


def test_tasks_and_scripts_hardly_repeat(written):
    assert len({header(facts) for facts, _ in written}) == len(written)
    assert len({script for _, script in written}) > 0.99 * len(written)


def test_most_scripts_parse_and_some_do_not(written):
    share = sum(parses(script) for _, script in written) / len(written)
    assert 0.95 < share < 0.999


def test_every_name_that_a_script_writes_right_stands_in_its_header(written):
    clean = sum(repr(facts.id_column) in script and repr(facts.target) in script for facts, script in written)
    assert clean > 0.9 * len(written)


@pytest.mark.parametrize("slip", SLIPS)
def test_every_slip_changes_scripts(slip, monkeypatch):
    random = Random(5)
    tasks = [imagine(random) for _ in range(40)]

    def scripts(slips: frozenset[str]) -> list[str]:
        monkeypatch.setattr("scripts.tiny.grammar._draw_slips", lambda random: slips)
        return [write_script(facts, Random(n)) for n, facts in enumerate(tasks)]

    assert scripts(frozenset({slip})) != scripts(frozenset())
