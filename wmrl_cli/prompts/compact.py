"""The prompt pack of the embedded model: a task in some fifty tokens, an expert's answer in one.

The embedded model was trained on exactly these words (scripts/tiny): a changed word here means a new training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wmrl_cli.maths.outcomes import Status
from wmrl_cli.prompts.base import DECILES, EXPERTS, QUALITY, ExpertQuestion, Message, Renderer
from wmrl_cli.task import Column, DataFile, Task

PASSES, OTHER = "passes", "other"
NAMES_SHOWN = 5  # columns of a kind whose names are told; more cost tokens and are hardly used
_ROW_STEPS = (100, 200, 500, 1000, 2000, 5000, 10000)

# What each expert may answer: failures that executing the training scripts showed, sorted by who should have seen them.
_FAILURES: dict[str, tuple[str, ...]] = {
    "dependencies": ("NameError", "ImportError", "ModuleNotFoundError"),
    "api": ("AttributeError", "TypeError", "InvalidParameterError"),
    "data": ("KeyError", "FileNotFoundError", "IndexError"),
    "shapes": ("ValueError",),
    "compute": (Status.TIMEOUT.value, Status.OUT_OF_MEMORY.value),
    "runtime": (OTHER,),
    "submission": (Status.NO_SUBMISSION.value, Status.BAD_SUBMISSION.value),
}
_OWNER = {failure: expert for expert, failures in _FAILURES.items() for failure in failures}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the embedded model is told about a task; measured from its inventory and contract."""

    category: str
    metric: str
    higher_is_better: bool
    prediction: str
    rows: int  # of the training data
    id_column: str
    target: str
    target_dtype: str
    numbers: tuple[str, ...]  # feature columns that hold numbers
    strings: tuple[str, ...]  # feature columns that hold anything else
    missing: tuple[str, ...] = ()  # of "numbers", "strings": which of them have empty cells
    text: str | None = None  # the column of free text
    image_shape: tuple[int, ...] | None = None


class CompactPack:
    """Short words for a model of a million parameters, which was trained on them and on no others."""

    name = "compact"
    turns = 1
    max_new_tokens = 224
    observation_tokens = 64
    experts = tuple(
        ExpertQuestion(name=name, kind="choice", choices=DECILES if name == QUALITY else (PASSES, *_FAILURES[name]))
        for name in EXPERTS
    )

    def within(self, *, wall_s: float, memory_gib: float) -> CompactPack:
        return self  # the embedded model is not told of limits

    def opening(self, task: Task, packages: Sequence[str]) -> list[Message]:
        return [{"role": "user", "content": header(facts_of(task))}]

    def feedback(self, observation: str) -> str:
        return f"{observation}\nTry again."

    def judge_prefix(self, tokenizer: Renderer, task: Task, script: str, packages: Sequence[str]) -> str:
        """The agent's own conversation: the task, then the script as its reply."""
        reply = {"role": "assistant", "content": as_reply(script)}
        return str(tokenizer.apply_chat_template([*self.opening(task, packages), reply], tokenize=False))

    def judge_suffix(self, tokenizer: Renderer, expert: ExpertQuestion) -> str:
        question = {"role": "user", "content": f"{expert.name}?"}
        return str(tokenizer.apply_chat_template([question], tokenize=False, add_generation_prompt=True))


def as_reply(script: str) -> str:
    """A script as the agent would have written it."""
    return f"```python\n{script.strip()}\n```"


def verdict_of(status: Status, error_class: str | None) -> tuple[str, str] | None:
    """The expert that should have seen this failure and its answer; None where there is nothing to see.

    Nothing to see: a valid script, one that does not compile (the compile gate's), one that was lost.
    """
    match status:
        case Status.VALID | Status.LOST | Status.MALFORMED | Status.SYNTAX_ERROR:
            return None
        case Status.RUNTIME_ERROR:
            failure = error_class if error_class in _OWNER else OTHER
        case Status.RESOURCE_LIMIT:
            failure = OTHER
        case _:
            failure = status.value
    return _OWNER[failure], failure


def header(facts: Facts) -> str:
    """The task in a few lines; names stand in quotes, exactly as a script writes them."""
    lines = [
        f"{facts.category} {facts.metric} {'higher' if facts.higher_is_better else 'lower'} {facts.prediction}",
        f"rows {min(_ROW_STEPS, key=lambda step: abs(step - facts.rows))}",
        f"id {facts.id_column!r}",
        f"target {facts.target!r}, {facts.target_dtype}",
    ]
    if facts.text is not None:
        lines.append(f"text {facts.text!r}")
    if facts.image_shape is not None:
        lines.append(f"images {'x'.join(map(str, facts.image_shape))}")
    for kind, names in (("numbers", facts.numbers), ("strings", facts.strings)):
        if names:
            lines.append(f"{kind} {len(names)}")
            lines.append(", ".join(map(repr, names[:NAMES_SHOWN])))
    lines.append(f"missing {', '.join(facts.missing) or 'none'}")
    return "\n".join(lines)


def facts_of(task: Task) -> Facts:
    """The facts of a task; a task without `train.csv` and `test.csv` has empty ones."""
    train, test = _columns(task.inventory, "train.csv"), _columns(task.inventory, "test.csv")
    target = task.contract.target_columns[0]
    features = [column for name, column in test.items() if name not in (task.contract.id_column, target)]
    strings = [column for column in features if column.dtype in ("string", "bool")]
    text = max(strings, key=lambda c: (c.distinct, c.name)).name if strings and task.category == "text" else None
    kinds = {
        "numbers": [column for column in features if column.dtype in ("int", "float")],
        "strings": [column for column in strings if column.name != text],
    }
    arrays = [file for file in task.inventory if file.kind == "npy" and file.shape and "train" in file.path]
    rows = [file.rows for file in task.inventory if _is(file, "train.csv")]
    return Facts(
        category=task.category,
        metric=task.metric,
        higher_is_better=task.higher_is_better,
        prediction=task.contract.prediction,
        rows=(rows[0] if rows else None) or 0,
        id_column=task.contract.id_column,
        target=target,
        target_dtype=train[target].dtype if target in train else "unknown",
        numbers=tuple(column.name for column in kinds["numbers"]),
        strings=tuple(column.name for column in kinds["strings"]),
        missing=tuple(
            kind
            for kind, columns in kinds.items()
            if any(column.missing or (column.name in train and train[column.name].missing) for column in columns)
        ),
        text=text,
        image_shape=arrays[0].shape[1:] if arrays and arrays[0].shape else None,
    )


def _is(file: DataFile, name: str) -> bool:
    return file.path.rpartition("/")[2] == name


def _columns(inventory: Sequence[DataFile], name: str) -> dict[str, Column]:
    return {column.name: column for file in inventory if _is(file, name) for column in file.columns}
