"""Write docs/reference/ from the code: the command's help, the tables' columns, the configuration's keys.

python scripts/build_reference.py            write
python scripts/build_reference.py --check    say what is not current, exit code 1
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import typing
from pathlib import Path
from typing import Any

import pyarrow as pa

from wmrl_cli import tables
from wmrl_cli.cli import app
from wmrl_cli.config import kind_words
from wmrl_cli.presets import PRESETS

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
MADE = "<!-- Made by scripts/build_reference.py: do not edit. -->\n\n"
WIDTH = 100

EXIT_CODES = """
## Exit codes

| code | meaning |
|---|---|
| 0 | done, or nothing to do |
| 1 | a stage failed; what it had finished is kept |
| 2 | wrong usage or configuration |
| 3 | a table is missing, damaged, of another kind or version |
| 4 | an engine, a model, a sandbox or a package is not available |
| 130 | interrupted; what was finished is kept, the same command goes on |

The result goes to stdout, as one JSON object with `--json`; progress, notes, warnings and errors go to stderr.
`NO_COLOR` switches colours off.
"""


def command_page() -> str:
    """Every command's help, as `wmrl NAME --help` prints it."""
    root = app.root()
    pages = [f"# Commands\n\n```console\n$ wmrl --help\n{rendered(root, 'wmrl')}\n```\n"]
    for name in app.COMMANDS:
        pages.append(
            f"## wmrl {name}\n\n```console\n$ wmrl {name} --help\n{rendered(app.load(name), f'wmrl {name}')}\n```\n"
        )
    return MADE + "\n".join(pages) + EXIT_CODES


def rendered(command: Any, name: str) -> str:
    context = command.context_class(command, info_name=name, terminal_width=WIDTH, **command.context_settings)
    with context.scope():
        return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


def table_page() -> str:
    """The columns of every table, with the comments that stand beside them in the code."""
    comments = trailing_comments(inspect.getsource(tables), r'_(?:must|may)\("(\w+)"')
    comments |= tables.METRIC_WORDS
    parts = [
        "# Tables\n\nEach table is one Parquet file, written whole or not at all. Its schema metadata hold "
        f"`wmrl.table`, `wmrl.version` (now {tables.VERSION}) and `wmrl.provenance` (JSON: code version, stage, "
        "resolved configuration, inputs). Readers accept exactly this version.\n"
    ]
    for kind in tables.KINDS.values():
        rows = []
        for field in kind.schema:
            null, words = "yes" if field.nullable else "no", comments.get(field.name, "")
            rows.append(f"| `{field.name}` | {type_words(field.type)} | {null} | {words} |")
        parts.append(f"## {kind.name}\n\n| column | type | null | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    return MADE + "\n".join(parts)


def type_words(kind: pa.DataType) -> str:
    if pa.types.is_list(kind):
        return f"list of {type_words(kind.value_type)}"
    if pa.types.is_struct(kind):
        return "{" + ", ".join(f"{field.name}: {type_words(field.type)}" for field in kind) + "}"
    return {"string": "text", "double": "float", "float": "float32", "bool": "boolean"}.get(str(kind), str(kind))


def config_page() -> str:
    """The keys of a training run's TOML file, sections included."""
    from wmrl_cli.training.config import TrainConfig

    parts = [
        "# Configuration\n\nKeys of the TOML file that `wmrl train --config FILE` reads; a flag wins over the file, "
        "the file over the model's preset, the preset over the default below. An unknown key is an error.\n",
        *config_section(TrainConfig, "", "Top level"),
        "## Presets\n\nWhat a model's preset replaces: `tiny` for the embedded model and those trained from it, `paper` for "
        "every other.\n\n| key | tiny | paper |\n|---|---|---|\n" + "\n".join(preset_rows()) + "\n",
    ]
    return MADE + "\n".join(parts)


def preset_rows() -> list[str]:
    flat = {
        name: {
            f"{key}.{inner}" if isinstance(value, dict) else key: inner_value
            for key, value in preset.items()
            for inner, inner_value in (value.items() if isinstance(value, dict) else [("", value)])
        }
        for name, preset in PRESETS.items()
    }
    keys = sorted({key for preset in flat.values() for key in preset})
    return [f"| `{key}` | {flat['tiny'].get(key, '')} | {flat['paper'].get(key, '')} |" for key in keys]


def config_section(cls: type[Any], prefix: str, title: str) -> list[str]:
    kinds = typing.get_type_hints(cls)
    comments = trailing_comments(inspect.getsource(cls), r"\s+(\w+):")
    rows, below = [], []
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(kinds[field.name]):
            section = typing.cast("type[Any]", kinds[field.name])
            below += config_section(section, f"{prefix}{field.name}.", f"`[{prefix}{field.name}]`")
            continue
        default = "none" if field.default in (None, dataclasses.MISSING) else json.dumps(field.default)
        kind = kind_words(kinds[field.name]).removeprefix("a ")
        rows.append(f"| `{field.name}` | {kind} | {default} | {comments.get(field.name, '')} |")
    about = (inspect.getdoc(cls) or "").split("\n\n")[0].replace("\n", " ")
    return [
        f"## {title}\n\n{about}\n\n| key | type | default | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n",
        *below,
    ]


def trailing_comments(source: str, name: str) -> dict[str, str]:
    """Name -> the comment at the end of its line."""
    found = {}
    for line in source.splitlines():
        match = re.match(rf"\s*{name}.*?#\s*(.+)$", line)
        if match:
            found.setdefault(match.group(1), match.group(2).replace("|", "or"))
    return found


PAGES = {"commands.md": command_page, "tables.md": table_page, "config.md": config_page}


def stale() -> list[str]:
    """Pages that are not what the code says now."""
    return [
        name for name, page in PAGES.items() if not (FOLDER / name).exists() or (FOLDER / name).read_text() != page()
    ]


def main() -> int:
    if "--check" in sys.argv[1:]:
        names = stale()
        for name in names:
            print(f"docs/reference/{name} is not current: run `make reference`", file=sys.stderr)
        return 1 if names else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (FOLDER / name).write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
