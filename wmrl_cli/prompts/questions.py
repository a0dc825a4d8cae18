"""The eight experts' questions for chat models, and the JSON that may answer them.

Seven experts look for one kind of failure each; the verdict stands first in their JSON, so that the probability
of its token can be read, and every string is bounded, so that an answer ends. The eighth places the script on
the leaderboard: the tenths are the whole answer, so that all ten probabilities can be read.
"""

from __future__ import annotations

from typing import Any

from wmrl_cli.maths.outcomes import Status
from wmrl_cli.prompts.base import DECILES, QUALITY, ExpertQuestion

PASS, FAIL = "pass", "fail"
OUTPUT_CHARACTERS = 300
CLASS_CHARACTERS = 48
ANSWER_TOKENS = 384  # a full output at one token a character, and the rest
STATUS_CLASSES = {
    "compute": (Status.TIMEOUT.value, Status.OUT_OF_MEMORY.value),
    "submission": (Status.NO_SUBMISSION.value, Status.BAD_SUBMISSION.value),
}

_ASPECTS = {
    "dependencies": """\
Imports and names. Go through the imports, then through every name in the order of execution. Is each package \
installed or part of Python, does each imported module and name exist in that version, and is every name defined, \
spelt alike, before each line that uses it, on every path that leads there? Typical classes: ModuleNotFoundError, \
ImportError, NameError, UnboundLocalError.""",
    "api": """\
Calls into libraries. For each function, class, method and attribute of a library: does it exist in the installed \
version, does it take these arguments under these names, and does it accept these values? Think of arguments that \
were renamed or removed. Typical classes: TypeError, AttributeError, ValueError, InvalidParameterError.""",
    "data": """\
Files, columns and keys. Does each path that is read exist as listed, from the working folder, and is it read in a \
way that fits its kind? Does each column, key or index exist in that very table at that moment, after all that was \
dropped, renamed or made before? The target is missing from the test table. Typical classes: FileNotFoundError, \
KeyError, IndexError, ValueError.""",
    "shapes": """\
Shapes and types. Follow each table, array and tensor from where it is read to where it is used. Are text and \
missing values gone before an estimator that takes neither? Do training and test have the same features in the same \
order and form, do lengths agree, do types and devices fit? Typical classes: ValueError, TypeError, RuntimeError.""",
    "compute": """\
Time and memory. Estimate the work from rows, columns, models, folds, trees, epochs and searches, with the cores and \
memory of a modest machine, and compare it with the limits of the sandbox. It fails only where it is clearly above \
them. `error_class` is `timeout` or `out_of_memory`, `line` the line where most of it is spent.""",
    "runtime": """\
Any other exception or exit. Everything that the other aspects (imports and names, library calls, files and columns, \
shapes and types, time and memory) do not cover: division by zero, empty selections, conversions, a failed assertion, \
an exit code that is not 0, network access, writing where it is not allowed, workers that cannot start. \
`error_class` is the exception's class.""",
    "submission": """\
The submission. The script runs to its end. Does it write the submission under its exact name into the working \
folder, with exactly these columns, one row for each id that is asked for, the ids unchanged, and in every target \
cell what is asked for, nothing empty or infinite? `error_class` is `no_submission` where the file is missing and \
`bad_submission` where it would be refused; `output` is then the reason in one sentence.""",
    QUALITY: """\
Quality. The script runs and its submission is accepted. Which tenth of the leaderboard does its score reach? Think \
of what the features, the preprocessing, the model and its settings can reach on data of this size under this metric, \
and of what others hand in for such a task: a plain baseline stands low, a careful and well-tuned solution high. \
0 is the lowest tenth, 9 the highest.""",
}

_FORM = f"""\
Answer with one JSON object: "verdict" is "{FAIL}" if the script fails in this aspect and "{PASS}" if not; "line" is \
the number of the line that fails, 0 for "{PASS}"; "error_class" names the failure, "" for "{PASS}"; "output" is the \
last line that the sandbox would print about it, as Python on Linux words it (at most {OUTPUT_CHARACTERS} \
characters), "" for "{PASS}"."""
_QUALITY_FORM = 'Answer with one JSON object whose only key is "decile", a digit as text, such as {"decile": "4"}.'


def failure_schema(classes: tuple[str, ...] = ()) -> dict[str, Any]:
    """JSON schema of a failure expert's answer; `classes` are the only classes it may name, where given."""
    named = {"enum": ["", *classes]} if classes else {"type": "string", "maxLength": CLASS_CHARACTERS}
    properties = {
        "verdict": {"enum": [PASS, FAIL]},
        "line": {"type": "integer", "minimum": 0, "maximum": 9999},
        "error_class": named,
        "output": {"type": "string", "maxLength": OUTPUT_CHARACTERS},
    }
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def question_text(expert: ExpertQuestion) -> str:
    """What is asked of `expert`, and the form of its answer."""
    return f"Aspect: {_ASPECTS[expert.name]}\n\n{_QUALITY_FORM if expert.kind == 'choice' else _FORM}"


EXPERT_QUESTIONS = tuple(
    ExpertQuestion(name=name, kind="choice", choices=DECILES)
    if name == QUALITY
    else ExpertQuestion(
        name=name, kind="json", schema=failure_schema(STATUS_CLASSES.get(name, ())), max_new_tokens=ANSWER_TOKENS
    )
    for name in _ASPECTS
)
