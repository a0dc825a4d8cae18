"""Inference on an OpenAI-compatible server, such as `vllm serve`: token ids go out, token ids and log-probs come back.

Written for vLLM's dialect of /v1/completions, which takes a prompt as token ids and has `return_token_ids`,
`structured_outputs` and `logprob_token_ids`. Another server must at least answer with token ids.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np

from wmrl_cli.engines.base import Completion, Floats, Ids, Sampling
from wmrl_cli.engines.chat import end_of_turn
from wmrl_cli.errors import UnavailableError
from wmrl_cli.hub import open_tokenizer
from wmrl_cli.seeds import digest

T = TypeVar("T")
_KEY = "WMRL_API_KEY"  # only from the environment: a secret never reaches a table's provenance
_TOKEN = "token_id:"  # how vLLM writes tokens when asked for ids instead of text
# A server applies the model's published sampling defaults (top_k 20, ...) to whatever a request leaves open, and
# would then sample from another distribution than the policy's.
_PLAIN = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0}


class HttpEngine:
    """An Engine on the server at `url`, which serves `served`; `tokenizer` must be that model's.

    `timeout_s` bounds one request. A request that finds no server, or a busy one, is tried `tries` times with
    growing pauses from `pause_s` on. `concurrency` requests run at once.
    """

    def __init__(
        self,
        url: str,
        tokenizer: Any,
        *,
        served: str,
        context_tokens: int,
        timeout_s: float = 600.0,
        tries: int = 5,
        pause_s: float = 1.0,
        concurrency: int = 64,
    ) -> None:
        self.url, self.tokenizer, self.served, self.context_tokens = url, tokenizer, served, context_tokens
        self._tries, self._pause_s, self._concurrency = tries, pause_s, concurrency
        self._ends = sorted({end_of_turn(tokenizer), tokenizer.eos_token_id} - {None})
        self._client = _client(url, timeout_s)

    @classmethod
    def open(cls, url: str, location: str, *, served: str | None = None, **options: Any) -> HttpEngine:
        """The engine for the model at `location` (folder or hub id, read for its tokenizer) behind `url`.

        `served` is the model's name on the server where it is not `location`. Raises UnavailableError where the
        server does not answer or does not serve it.
        """
        url = url.rstrip("/").removesuffix("/v1")
        name = served or location
        try:
            with _client(url, 10.0) as client:
                answer = client.get("/v1/models").raise_for_status().json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise UnavailableError(
                f"no model server answers at `{url}`: {error}", "start it, or check `--url`"
            ) from error
        models = {model["id"]: model for model in answer.get("data", [])}
        entry = models.get(name) or next((model for model in models.values() if model.get("root") == name), None)
        if entry is None:
            raise UnavailableError(
                f"the server at `{url}` does not serve `{name}`", f"it serves `{'`, `'.join(models) or 'nothing'}`"
            )
        tokenizer = open_tokenizer(location)
        context = entry.get("max_model_len") or tokenizer.model_max_length
        return cls(url, tokenizer, served=entry["id"], context_tokens=int(context), **options)

    @property
    def digest(self) -> str:
        """Digest of the server's address, the model's name there and the tokenizer: it cannot see the weights."""
        return digest(self.url, self.served, self.tokenizer.backend_tokenizer.to_str())

    def load_weights(self, folder: Path) -> None:
        """Raises UnavailableError: a server's weights are changed by whoever runs it."""
        raise UnavailableError(
            f"the server at `{self.url}` cannot be given the weights in `{folder}`",
            "start a server on that folder, or use the engine `transformers` for a model that is being trained",
        )

    def generate(
        self,
        prompts: Sequence[Ids],
        sampling: Sampling,
        *,
        seeds: Sequence[int],
        schema: Mapping[str, Any] | None = None,
    ) -> list[Completion | None]:
        """See Engine.generate. A row is None where the server refuses it, times out on it or answers it unusably."""
        rows = list(zip(prompts, seeds, strict=True))
        constraint = {} if schema is None else _constraint(schema)

        def complete(row: tuple[Ids, int]) -> Completion | None:
            prompt, seed = row
            room = min(sampling.max_new_tokens, self.context_tokens - len(prompt))
            if not len(prompt) or room < 1:
                return None
            answer = self._ask(
                prompt,
                max_tokens=room,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                seed=seed,
                logprobs=0,
                **constraint,
            )
            return None if answer is None else _completion(answer)

        return self._map(complete, rows)

    def choose(
        self, prefixes: Sequence[Ids], suffixes: Sequence[Ids], choices: Sequence[Sequence[Ids]]
    ) -> list[list[Floats]]:
        """See Engine.choose. The server's prefix cache is what reads a prefix once.

        One request a question where every choice is one token and the server gives log-probs of named tokens
        (vLLM's `logprob_token_ids`); else one request a choice, which reads the log-probs of its tokens as prompt.
        """
        questions = list(zip(suffixes, choices, strict=True))
        pairs = [([*prefix, *suffix], options) for prefix in prefixes for suffix, options in questions]
        answers = self._map(lambda pair: self._choose(*pair), pairs)
        width = len(questions)
        return [answers[row * width : (row + 1) * width] for row in range(len(prefixes))]

    def _choose(self, prompt: Ids, options: Sequence[Ids]) -> Floats:
        if not options or not all(len(option) for option in options):
            raise ValueError("a question needs choices of at least one token")
        if len(prompt) + max(map(len, options)) > self.context_tokens:
            return np.full(len(options), np.nan)
        totals = None
        if all(len(option) == 1 for option in options):
            totals = self._named(prompt, [option[0] for option in options])
        if totals is None:
            totals = [self._as_prompt(prompt, option) for option in options]
        if None in totals:  # one lost choice makes the question lost
            return np.full(len(options), np.nan)
        values = np.array(totals, dtype=np.float64)
        normalised: Floats = values - np.logaddexp.reduce(values)
        return normalised

    def _named(self, prompt: Ids, tokens: list[int]) -> list[float | None] | None:
        """Log-probs of `tokens` as the next one; None where the server does not give them all."""
        answer = self._ask(prompt, max_tokens=1, temperature=0.0, top_p=1.0, logprobs=1, logprob_token_ids=tokens)
        if answer is None:
            return [None] * len(tokens)
        top = ((answer.get("logprobs") or {}).get("top_logprobs") or [{}])[0] or {}
        found = [top.get(f"{_TOKEN}{token}") for token in tokens]
        return None if None in found else found

    def _as_prompt(self, prompt: Ids, option: Ids) -> float | None:
        """Log-prob of `option` after `prompt`, read as a prompt; None where the row is lost."""
        whole = [*prompt, *option]
        answer = self._ask(whole, max_tokens=1, temperature=0.0, top_p=1.0, prompt_logprobs=1)
        if answer is None:
            return None
        places = (answer.get("prompt_logprobs") or [])[len(prompt) :]
        if len(places) != len(option) or not all(str(t) in place for t, place in zip(option, places, strict=True)):
            raise UnavailableError(
                f"the server at `{self.url}` gives no log-probabilities of named tokens",
                "use vLLM (`vllm serve`), 0.30 or newer",
            )
        return float(sum(place[str(token)]["logprob"] for token, place in zip(option, places, strict=True)))

    def _ask(self, prompt: Ids, **fields: Any) -> dict[str, Any] | None:
        """The one choice that the server answers; None where it refuses this row. Raises UnavailableError."""
        body = {
            "model": self.served,
            "prompt": [int(token) for token in prompt],
            "stop_token_ids": self._ends,
            "skip_special_tokens": False,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            **_PLAIN,
            **fields,
        }
        reason = ""
        for attempt in range(self._tries):
            if attempt:
                time.sleep(self._pause_s * 2 ** (attempt - 1) * random.uniform(0.5, 1.0))
            try:
                response = self._client.post("/v1/completions", json=body)
            except httpx.ReadTimeout:
                return None  # busy for longer than we wait; asking again would make it busier
            except httpx.TransportError as error:
                reason = str(error) or type(error).__name__
                continue
            if response.is_success:
                return _first_choice(response)
            reason = f"HTTP {response.status_code}"
            if response.status_code in (401, 403, 404):
                break
            if response.status_code not in (408, 425, 429, 500, 502, 503, 504):
                return None
        if reason == "HTTP 500" and self._healthy():
            return None
        raise UnavailableError(
            f"the model server at `{self.url}` does not work: {reason}", f"check that it runs; a key goes into {_KEY}"
        )

    def _healthy(self) -> bool:
        """Whether the server says that it works as a whole; one that cannot be asked (404) counts as well."""
        try:
            return self._client.get("/health").status_code in (200, 404)
        except httpx.HTTPError:
            return False

    def _map(self, call: Callable[[Any], T], rows: Iterable[Any]) -> list[T]:
        pool = ThreadPoolExecutor(max_workers=self._concurrency)
        try:
            return list(pool.map(call, rows))
        except KeyboardInterrupt:
            self._client.close()  # ends the requests that run, so that nobody waits for them
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _client(url: str, timeout_s: float) -> httpx.Client:
    key = os.environ.get(_KEY)
    return httpx.Client(
        base_url=url,
        headers={"Authorization": f"Bearer {key}"} if key else {},
        timeout=httpx.Timeout(timeout_s, connect=min(10.0, timeout_s)),
        limits=httpx.Limits(),
    )


def _constraint(schema: Mapping[str, Any]) -> dict[str, Any]:
    """JSON by schema, as vLLM says it and as OpenAI does. Compact: free white space lets a model stall in it."""
    return {
        "structured_outputs": {"json": schema, "disable_any_whitespace": True},
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}},
    }


def _first_choice(response: httpx.Response) -> dict[str, Any] | None:
    try:
        choice = response.json()["choices"][0]
    except (ValueError, LookupError, TypeError):
        return None
    return choice if isinstance(choice, dict) else None


def _completion(choice: Mapping[str, Any]) -> Completion | None:
    """The reply in `choice`; None where it is empty, broken off, or its log-probs are missing or not finite."""
    logprobs = choice.get("logprobs") or {}
    ids, values = _ids(choice, logprobs), logprobs.get("token_logprobs")
    reason = choice.get("finish_reason")
    if not ids or reason not in ("stop", "length") or values is None or len(values) != len(ids):
        return None
    if not all(isinstance(value, int | float) and np.isfinite(value) for value in values):
        return None
    return Completion(ids=ids, logprobs=tuple(map(float, values)), finish_reason=reason)


def _ids(choice: Mapping[str, Any], logprobs: Mapping[str, Any]) -> tuple[int, ...]:
    """The sampled token ids, from `token_ids` or from tokens written as `token_id:N`. Raises UnavailableError."""
    if (ids := choice.get("token_ids")) is not None:
        return tuple(ids)
    tokens = logprobs.get("tokens") or []
    if tokens and all(isinstance(token, str) and token.startswith(_TOKEN) for token in tokens):
        return tuple(int(token.removeprefix(_TOKEN)) for token in tokens)
    raise UnavailableError(
        "the model server answers with text and not with token ids, which training needs", "use vLLM (`vllm serve`)"
    )
