"""A small model server over real HTTP that answers in the shapes of vLLM's /v1/completions."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from wmrl_cli.engines.base import Sampling
from wmrl_cli.engines.transformers_engine import TransformersEngine

REFUSED = 77  # a prompt that starts with this token is answered with HTTP 400
BROKEN = 78  # and one with this token with HTTP 500


class ModelServer:
    """What the server does is set by attributes, so that a test can break it in one way."""

    def __init__(self, engine: TransformersEngine) -> None:
        self.engine = engine
        self.name = "tiny-model"
        self.failures: list[int] = []  # HTTP statuses of the next answers
        self.names_tokens = True  # whether `logprob_token_ids` is understood
        self.gives_ids = True
        self.healthy = True
        self.requests: list[dict[str, Any]] = []
        self.lock = threading.Lock()

    def complete(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self.lock:
            self.requests.append(body)
            if self.failures:
                return self.failures.pop(0), {"error": "as told"}
        if body["prompt"][0] in (REFUSED, BROKEN):
            return (400 if body["prompt"][0] == REFUSED else 500), {"error": "not this one"}
        choice: dict[str, Any] = {"index": 0, "text": "", "prompt_logprobs": None}
        if body.get("prompt_logprobs") is not None:
            choice["prompt_logprobs"] = self._read(body["prompt"])
            return 200, {"choices": [choice | {"finish_reason": "length"}]}
        if self.names_tokens and (tokens := body.get("logprob_token_ids")):
            last = self._logp(body["prompt"])[-1]
            top = {f"token_id:{token}": last[token].item() for token in tokens}
            return 200, {"choices": [choice | {"finish_reason": "length", "logprobs": {"top_logprobs": [top]}}]}
        sampling = Sampling(max_new_tokens=body["max_tokens"], temperature=body["temperature"], top_p=body["top_p"])
        schema = body.get("structured_outputs", {}).get("json")
        completion = self.engine.generate([body["prompt"]], sampling, seeds=[body.get("seed", 0)], schema=schema)[0]
        assert completion is not None
        names = [f"token_id:{token}" if self.gives_ids else "word" for token in completion.ids]
        top = [{name: value} for name, value in zip(names, completion.logprobs, strict=True)]
        logprobs = {"tokens": names, "token_logprobs": list(completion.logprobs), "top_logprobs": top}
        return 200, {"choices": [choice | {"finish_reason": completion.finish_reason, "logprobs": logprobs}]}

    def _read(self, prompt: list[int]) -> list[dict[str, Any] | None]:
        logp = self._logp(prompt)
        return [None, *({str(t): {"logprob": logp[i, t].item()}} for i, t in enumerate(prompt[1:]))]

    def _logp(self, prompt: list[int]) -> torch.Tensor:
        with torch.inference_mode():
            return self.engine.model(input_ids=torch.tensor([prompt])).logits[0].log_softmax(-1)


@contextmanager
def serve(server: ModelServer) -> Iterator[str]:
    """The address of `server` while it runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/health":
                return self._answer(200 if server.healthy else 503, {})
            models = [{"id": server.name, "max_model_len": server.engine.context_tokens}]
            self._answer(200, {"object": "list", "data": models})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(*server.complete(body))

        def _answer(self, status: int, answer: dict[str, Any]) -> None:
            payload = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        http.server_close()
