"""Which model a name means, and the engine that runs it."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from wmrl_cli.engines.base import Engine
from wmrl_cli.errors import ConfigError, UnavailableError

ENGINES = ("transformers", "http")
EMBEDDED = Path(__file__).parent.parent / "embedded" / "tiny"
PACK_KEY = "wmrl_pack"  # in a model's config.json: the prompt pack it was trained on; survives fine-tuning and saving


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model as the rest of the program needs to know it."""

    name: str  # as the user gave it
    location: str  # a local folder or a hub id
    pack: str  # prompt pack: compact | standard
    dtype: str  # on a GPU; on a CPU it is float32
    preset: Literal["tiny", "paper"]  # which table of hyper-parameters training starts from
    needs_gpu: bool = False


_NAMED = {
    "tiny": ModelSpec(name="tiny", location=str(EMBEDDED), pack="compact", dtype="float32", preset="tiny"),
    **{
        f"qwen3.5-{size}b": ModelSpec(
            name=f"qwen3.5-{size}b",
            location=f"Qwen/Qwen3.5-{size}B",
            pack="standard",
            dtype="bfloat16",
            preset="paper",
            needs_gpu=True,
        )
        for size in (4, 9)
    },
}


def resolve_model(name: str) -> ModelSpec:
    """The model called `name`: a known name, a local folder, or a hub id such as `Qwen/Qwen3-4B`.

    Raises ConfigError for a folder without model or tokenizer and for any other name. The hub is not asked yet.
    """
    if spec := _NAMED.get(name.lower()):
        return spec
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _folder_spec(name, folder)
    if re.fullmatch(r"[\w-]+/[\w.-]+", name):
        return ModelSpec(name=name, location=name, pack="standard", dtype="bfloat16", preset="paper")
    near = difflib.get_close_matches(name.lower(), _NAMED, n=1)
    raise ConfigError(
        f"there is no model `{name}`",
        (f"did you mean `{near[0]}`? " if near else "")
        + f"known names are `{'`, `'.join(_NAMED)}`; a local folder or a hub id works too",
    )


def _folder_spec(name: str, folder: Path) -> ModelSpec:
    hint = "give a folder that `save_pretrained` wrote, model and tokenizer"
    if not (folder / "config.json").is_file():
        raise ConfigError(f"`{name}` holds no model: `config.json` is missing", hint)
    if not any((folder / file).is_file() for file in ("tokenizer.json", "tokenizer_config.json")):
        raise ConfigError(f"`{name}` holds no tokenizer: `tokenizer.json` is missing", hint)
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(f"`{name}` holds no weights: no `.safetensors` file is there", hint)
    try:
        config = json.loads((folder / "config.json").read_text())
    except json.JSONDecodeError as error:
        raise ConfigError(f"`{folder / 'config.json'}` is not JSON: {error}", hint) from error
    pack = config.get(PACK_KEY, "standard")
    small = pack == "compact"
    return ModelSpec(
        name=name,
        location=str(folder),
        pack=pack,
        dtype="float32" if small else "bfloat16",
        preset="tiny" if small else "paper",
    )


def resolve_device(spec: ModelSpec, device: str) -> str:
    """`auto` is the GPU where there is one, else the CPU unless the model needs a GPU. Raises UnavailableError."""
    torch = _torch()
    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        if spec.needs_gpu:
            raise UnavailableError(
                f"`{spec.name}` needs a GPU, and this machine has none that PyTorch can use",
                "run it on a GPU machine, use a server with `--engine http`, or try `--model tiny`; "
                "`--device cpu` runs it here, very slowly",
            )
        return "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise UnavailableError(f"`{device}` was asked for, and PyTorch finds no GPU here", "use `--device cpu`")
    if not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise ConfigError(f"there is no device `{device}`", "devices are `auto`, `cpu`, `cuda` and `cuda:N`")
    return device


def resolve_dtype(spec: ModelSpec, dtype: str, device: str) -> str:
    """`auto` is the model's own on a GPU and float32 on a CPU."""
    if dtype == "auto":
        return "float32" if device == "cpu" else spec.dtype
    if dtype not in ("float32", "bfloat16", "float16"):
        raise ConfigError(f"there is no dtype `{dtype}`", "dtypes are `auto`, `float32`, `bfloat16` and `float16`")
    return dtype


def open_engine(
    model: str,
    *,
    engine: str = "transformers",
    device: str = "auto",
    dtype: str = "auto",
    url: str | None = None,
) -> Engine:
    """The engine that runs `model`.

    `transformers` runs it in this process on `device`; `http` asks the OpenAI-compatible server at `url`, which
    serves it, and reads only the tokenizer here. Raises ConfigError and UnavailableError.
    """
    if engine == "vllm":
        raise UnavailableError(
            "vLLM inside this process is not built",
            "start `vllm serve MODEL` and use `--engine http --url http://HOST:PORT`",
        )
    if engine not in ENGINES:
        raise ConfigError(f"there is no engine `{engine}`", f"engines are `{'`, `'.join(ENGINES)}`")
    spec = resolve_model(model)
    if engine == "http":
        if not url:
            raise ConfigError("the engine `http` needs the server's address", "add `--url http://HOST:PORT`")
        from wmrl_cli.engines.http_engine import HttpEngine

        return HttpEngine.open(url, spec.location)
    where = resolve_device(spec, device)
    from wmrl_cli.engines.transformers_engine import TransformersEngine

    return TransformersEngine.open(spec.location, dtype=resolve_dtype(spec, dtype, where), device=where)


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise UnavailableError("running a model here needs PyTorch", "pip install 'wmrl-cli[cpu]'") from error
    return torch
