from pathlib import Path

import pytest

from tests.engines.models import build_qwen3, build_tokenizer
from wmrl_cli.engines.models import open_engine, resolve_device, resolve_dtype, resolve_model
from wmrl_cli.errors import ConfigError, UnavailableError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = build_tokenizer()
    build_qwen3(tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_names_that_are_known():
    tiny, four = resolve_model("tiny"), resolve_model("Qwen3.5-4B")
    assert (tiny.pack, tiny.preset, tiny.dtype) == ("compact", "tiny", "float32")
    assert (four.location, four.pack, four.dtype, four.preset) == ("Qwen/Qwen3.5-4B", "standard", "bfloat16", "paper")
    assert resolve_model("qwen3.5-9b").location == "Qwen/Qwen3.5-9B"


def test_a_hub_id_is_taken_as_it_is():
    assert resolve_model("Qwen/Qwen3-0.6B").location == "Qwen/Qwen3-0.6B"


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="no model `qwen3.5-4`") as caught:
        resolve_model("qwen3.5-4")
    assert "did you mean `qwen3.5-4b`?" in (caught.value.hint or "") and "`tiny`" in (caught.value.hint or "")


def test_a_folder_knows_its_own_prompt_pack(folder: Path):
    assert resolve_model(str(folder)).pack == "standard"
    model = build_qwen3(build_tokenizer())
    model.config.wmrl_pack = "compact"
    model.save_pretrained(folder)
    spec = resolve_model(str(folder))
    assert (spec.pack, spec.preset, spec.dtype) == ("compact", "tiny", "float32")


@pytest.mark.parametrize(
    ("pattern", "missing"),
    [("config.json", "no model"), ("tokenizer*", "no tokenizer"), ("*.safetensors", "no weights")],
)
def test_an_incomplete_folder_says_what_is_missing(folder: Path, pattern: str, missing: str):
    for file in folder.glob(pattern):
        file.unlink()
    with pytest.raises(ConfigError, match=missing):
        resolve_model(str(folder))


def test_a_folder_that_is_no_model_inside_is_one_sentence(folder: Path):
    (folder / "config.json").write_text('{"model_type": "unheard-of"}')
    with pytest.raises(ConfigError, match="could not be loaded"):
        open_engine(str(folder), device="cpu")


def test_a_hub_that_cannot_be_reached_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UnavailableError, match="`nobody/nothing` is no local folder") as caught:
        open_engine("nobody/nothing", device="cpu")
    assert caught.value.exit_code == 4 and "local folder" in (caught.value.hint or "")


def test_devices_and_dtypes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    tiny, four = resolve_model("tiny"), resolve_model("qwen3.5-4b")
    assert resolve_device(tiny, "auto") == "cpu"
    assert resolve_device(four, "cpu") == "cpu"
    with pytest.raises(UnavailableError, match="`qwen3.5-4b` needs a GPU"):
        resolve_device(four, "auto")
    with pytest.raises(UnavailableError, match="finds no GPU"):
        resolve_device(tiny, "cuda:1")
    with pytest.raises(ConfigError, match="no device `tpu`"):
        resolve_device(tiny, "tpu")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert resolve_device(four, "auto") == "cuda"
    assert resolve_dtype(four, "auto", "cuda") == "bfloat16"
    assert resolve_dtype(four, "auto", "cpu") == "float32"
    assert resolve_dtype(tiny, "bfloat16", "cpu") == "bfloat16"
    with pytest.raises(ConfigError, match="no dtype `int3`"):
        resolve_dtype(tiny, "int3", "cpu")


def test_vllm_in_process_is_refused_with_the_way_to_use_it():
    with pytest.raises(UnavailableError, match="not built") as caught:
        open_engine("tiny", engine="vllm")
    assert "vllm serve" in (caught.value.hint or "") and "http" in (caught.value.hint or "")
    with pytest.raises(ConfigError, match="no engine `abacus`"):
        open_engine("tiny", engine="abacus")
