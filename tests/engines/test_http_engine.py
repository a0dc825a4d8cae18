"""How the http engine bears a server that is away, busy, broken or of another kind; over real HTTP."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.engines.models import build_qwen3, build_tokenizer
from tests.engines.server import BROKEN, REFUSED, ModelServer, serve
from wmrl_cli.engines.base import Sampling
from wmrl_cli.engines.http_engine import HttpEngine
from wmrl_cli.engines.models import open_engine
from wmrl_cli.engines.transformers_engine import TransformersEngine
from wmrl_cli.errors import ConfigError, UnavailableError

SAMPLING = Sampling(max_new_tokens=4)
LOCAL = TransformersEngine(build_qwen3(build_tokenizer()), build_tokenizer())


@pytest.fixture
def server() -> ModelServer:
    return ModelServer(LOCAL)


@pytest.fixture
def engine(server: ModelServer) -> Iterator[HttpEngine]:
    with serve(server) as url:
        yield HttpEngine(url, LOCAL.tokenizer, served=server.name, context_tokens=1024, tries=3, pause_s=0.01)


def test_a_refused_row_is_lost_and_the_others_are_not(engine: HttpEngine):
    refused, kept = engine.generate([[REFUSED, 5], [5]], SAMPLING, seeds=[1, 2])
    assert refused is None and kept is not None
    lost, found = engine.choose([[REFUSED, 5], [5]], [[7]], [[[8], [9]]])
    assert np.isnan(lost[0]).all() and np.isfinite(found[0]).all()


def test_a_row_that_breaks_a_healthy_server_is_lost(engine: HttpEngine):
    broken, kept = engine.generate([[BROKEN, 5], [5]], SAMPLING, seeds=[1, 2])
    assert broken is None and kept is not None


def test_a_server_whose_engine_died_is_unavailable(engine: HttpEngine, server: ModelServer):
    server.healthy = False
    with pytest.raises(UnavailableError, match="HTTP 500"):
        engine.generate([[BROKEN, 5]], SAMPLING, seeds=[1])


def test_a_busy_server_is_asked_again(engine: HttpEngine, server: ModelServer):
    server.failures = [503, 429]
    assert engine.generate([[5]], SAMPLING, seeds=[1]) == LOCAL.generate([[5]], SAMPLING, seeds=[1])
    assert len(server.requests) == 3


def test_a_server_that_stays_busy_is_unavailable(engine: HttpEngine, server: ModelServer):
    server.failures = [503] * 3
    with pytest.raises(UnavailableError, match="HTTP 503") as caught:
        engine.generate([[5]], SAMPLING, seeds=[1])
    assert caught.value.exit_code == 4 and "WMRL_API_KEY" in (caught.value.hint or "")


def test_a_wrong_key_is_not_tried_again(engine: HttpEngine, server: ModelServer):
    server.failures = [401]
    with pytest.raises(UnavailableError, match="HTTP 401"):
        engine.generate([[5]], SAMPLING, seeds=[1])
    assert len(server.requests) == 1


def test_a_server_that_is_down_is_one_sentence(server: ModelServer):
    with serve(server) as url:
        pass
    engine = HttpEngine(url, LOCAL.tokenizer, served=server.name, context_tokens=1024, tries=2, pause_s=0.01)
    with pytest.raises(UnavailableError, match=f"server at `{url}`"):
        engine.generate([[5]], SAMPLING, seeds=[1])
    with pytest.raises(UnavailableError, match="no model server answers"):
        HttpEngine.open(url, "somewhere")


def test_a_request_that_takes_too_long_is_lost(server: ModelServer):
    with serve(server) as url, server.lock:  # the lock keeps the server from answering
        engine = HttpEngine(url, LOCAL.tokenizer, served=server.name, context_tokens=1024, timeout_s=0.3)
        assert engine.generate([[5]], SAMPLING, seeds=[1]) == [None]


def test_the_servers_own_sampling_defaults_are_overridden(engine: HttpEngine, server: ModelServer):
    engine.generate([[5]], SAMPLING, seeds=[7])
    (body,) = server.requests
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"], body["seed"]) == (1.0, 1.0, 0, 0.0, 7)
    assert (body["repetition_penalty"], body["presence_penalty"]) == (1.0, 0.0)


def test_a_server_without_named_logprobs_gives_the_same_choices(engine: HttpEngine, server: ModelServer):
    question = ([[5], [6, 7]], [[7]], [[[8], [9], [10]]])
    named = engine.choose(*question)
    asked = len(server.requests)
    server.names_tokens = False
    np.testing.assert_allclose(np.array(engine.choose(*question)), np.array(named), atol=1e-4)
    assert asked == 2 and len(server.requests) == asked + 2 * (1 + 3)


def test_a_server_that_answers_with_text_only_is_refused(engine: HttpEngine, server: ModelServer):
    server.gives_ids = False
    with pytest.raises(UnavailableError, match="token ids"):
        engine.generate([[5]], SAMPLING, seeds=[1])


def test_open_asks_what_is_served_and_reads_the_tokenizer(server: ModelServer, tmp_path: Path):
    LOCAL.model.save_pretrained(tmp_path)
    LOCAL.tokenizer.save_pretrained(tmp_path)
    with serve(server) as url:
        with pytest.raises(UnavailableError, match="does not serve") as caught:
            open_engine(str(tmp_path), engine="http", url=url)
        assert server.name in (caught.value.hint or "")
        engine = HttpEngine.open(f"{url}/v1", str(tmp_path), served=server.name)
        assert engine.context_tokens == 1024
        assert engine.generate([[5]], SAMPLING, seeds=[1]) == LOCAL.generate([[5]], SAMPLING, seeds=[1])
    with pytest.raises(UnavailableError, match="cannot be given"):
        engine.load_weights(tmp_path)
    with pytest.raises(ConfigError, match="address"):
        open_engine(str(tmp_path), engine="http")
