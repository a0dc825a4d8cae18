"""The shipped weights and tokenizer: small, in both roles, and read exactly as they were trained."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from scripts.tiny.grammar import write_script
from scripts.tiny.imagined import imagine
from scripts.tiny.sequences import Encoder, Labelled, answers, collate
from wmrl_cli.agent.parsing import extract_script
from wmrl_cli.engines.base import Sampling
from wmrl_cli.engines.chat import opening_ids
from wmrl_cli.engines.models import EMBEDDED, resolve_model
from wmrl_cli.engines.transformers_engine import TransformersEngine
from wmrl_cli.maths.outcomes import Status
from wmrl_cli.prompts import get_pack
from wmrl_cli.prompts.compact import as_reply, header

PACK = get_pack("compact")


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    torch.set_num_threads(1)
    return TransformersEngine.open(str(EMBEDDED), dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def written() -> list[tuple[str, str]]:
    random = Random(3)
    return [(header(facts := imagine(random)), write_script(facts, random)) for _ in range(24)]


def ids(engine: TransformersEngine, text: str) -> list[int]:
    return engine.tokenizer.encode(text, add_special_tokens=False)


def conversation(engine: TransformersEngine, opening: str, script: str) -> str:
    turns = [{"role": "user", "content": opening}, {"role": "assistant", "content": as_reply(script)}]
    return engine.tokenizer.apply_chat_template(turns, tokenize=False)


def test_it_is_small_and_finds_its_prompt_pack(engine):
    assert sum(file.stat().st_size for file in EMBEDDED.iterdir()) < 5_000_000
    assert sum(weight.numel() for weight in engine.model.parameters()) < 2_000_000
    assert resolve_model("tiny").pack == resolve_model(str(EMBEDDED)).pack == "compact"


def test_every_answer_is_one_token_and_every_question_its_own(engine):
    questions = []
    for expert in PACK.experts:
        answer_ids = [ids(engine, choice) for choice in expert.choices]
        assert all(len(answer) == 1 for answer in answer_ids)
        assert len({answer[0] for answer in answer_ids}) == len(answer_ids)
        questions.append(tuple(ids(engine, PACK.judge_suffix(engine.tokenizer, expert))))
    assert len(set(questions)) == 8


def test_a_reply_has_the_same_tokens_written_and_read_back(engine, written):
    for opening, script in written:
        prompt = opening_ids(engine.tokenizer, [{"role": "user", "content": opening}])
        reply = ids(engine, as_reply(script) + "<|im_end|>")
        assert ids(engine, conversation(engine, opening, script)) == [*prompt, *reply, *ids(engine, "\n")]


def test_any_text_survives_the_tokenizer(engine):
    for text in ("x = 'é\n'", "  tabs\tand 'quotes\n", "KeyError: 'passes'", "assistant\nuser\n"):
        assert engine.tokenizer.decode(ids(engine, text)) == text


def test_questions_are_read_exactly_as_they_were_trained(engine, written):
    encoder = Encoder(engine.tokenizer)
    prefixes = [ids(engine, conversation(engine, opening, script)) for opening, script in written]
    suffixes = [ids(engine, PACK.judge_suffix(engine.tokenizer, expert)) for expert in PACK.experts]
    choices = [[ids(engine, choice) for choice in expert.choices] for expert in PACK.experts]
    read = engine.choose(prefixes, suffixes, choices)
    verdicts = {expert.name: expert.choices[0] for expert in PACK.experts}
    batch = collate([encoder.encode(o, s, verdicts, imitate=True) for o, s in written], encoder.pad)
    with torch.inference_mode():
        logits = engine.model(
            input_ids=batch.ids, attention_mask=batch.visible, position_ids=batch.positions
        ).logits.log_softmax(-1)
    for row in range(len(written)):
        ends = torch.nonzero(batch.verdict_targets[row] >= 0)[:, 0].tolist()
        for end, options, got in zip(ends, choices, read[row], strict=True):
            trained = logits[row, end, [option[0] for option in options]].log_softmax(-1).numpy()
            np.testing.assert_allclose(got, trained, atol=2e-3)


def test_labels_say_only_what_execution_showed():
    def said(status: Status, error_class: str | None = None, q: float | None = None) -> dict[str, str]:
        fields = {"task_id": "t", "header": "h", "script": "s", "by_agent": False}
        return answers(Labelled(**fields, status=status.value, error_class=error_class, q=q))

    assert said(Status.SYNTAX_ERROR) == said(Status.LOST) == {}
    crashed = said(Status.RUNTIME_ERROR, "KeyError")
    assert crashed["data"] == "KeyError" and crashed["api"] == "passes"
    assert not {"compute", "submission", "quality"} & crashed.keys()
    assert said(Status.TIMEOUT)["compute"] == "timeout" and "submission" not in said(Status.TIMEOUT)
    refused = said(Status.BAD_SUBMISSION)
    assert (refused["submission"], refused["compute"]) == ("bad_submission", "passes") and "quality" not in refused
    assert set(said(Status.VALID, q=1.0).values()) == {"passes", "9"}
    assert said(Status.VALID, q=0.0)["quality"] == "0"


def test_the_agent_writes_scripts_that_parse_and_name_the_tasks_columns(engine):
    random = Random(17)
    tasks = [imagine(random) for _ in range(64)]
    prompts = [opening_ids(engine.tokenizer, [{"role": "user", "content": header(facts)}]) for facts in tasks]
    replies = engine.generate(prompts, Sampling(max_new_tokens=PACK.max_new_tokens), seeds=range(64))
    named = parsed = 0
    for facts, reply in zip(tasks, replies, strict=True):
        script = extract_script(engine.tokenizer.decode(reply.ids, skip_special_tokens=True), reply.finish_reason)
        parsed += script is not None and _compiles(script)
        named += script is not None and repr(facts.target) in script and repr(facts.id_column) in script
    assert parsed >= 48 and named >= 32


def _compiles(script: str) -> bool:
    try:
        compile(script, "script.py", "exec")
    except SyntaxError:
        return False
    return True


def test_the_card_names_the_command_and_the_numbers():
    card = (Path(EMBEDDED) / "README.md").read_text()
    assert "python -m scripts.tiny.build" in card
    for line in ("| valid |", "| Spearman correlation inside groups |", "| bias of the expected reward |"):
        assert line in card
