"""One call of calibrate: read, analyse, write. Nothing is written before all of it was computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from wmrl_cli.errors import ConfigError
from wmrl_cli.maths.analysis import Analysis, CalibrateConfig, analyse, summary
from wmrl_cli.maths.pair_log import PairLog
from wmrl_cli.stages.calibrate.apply import apply_map
from wmrl_cli.stages.calibrate.files_out import as_json, read_map, saved_map, write_json, write_online
from wmrl_cli.stages.calibrate.read import read_log
from wmrl_cli.tables import write_atomically


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """Files to write; None: not. `main` is calibration.json, or the calibrated table with `apply` (a table to read)."""

    main: Path | None = None
    report: Path | None = None
    apply: Path | None = None
    online: Path | None = None
    online_steps: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a call asks for. Raises ConfigError where its parts contradict each other."""

    logs: Sequence[Path]
    columns: dict[str, str | None]
    config: CalibrateConfig
    scale: tuple[float, float] = (0.0, 1.0)
    limit: int | None = None
    tasks: Path | None = None
    compare: bool = False
    study: str | None = None
    map_file: Path | None = None
    outputs: Outputs = Outputs()

    def __post_init__(self) -> None:
        out = self.outputs
        if out.apply is not None and out.main is None:
            raise ConfigError("`--apply` needs a table to write", "name it with `-o FILE`")
        if self.map_file is not None and (out.apply is None or self.logs):
            raise ConfigError("`--map` is a map to apply instead of a log", "give `--apply TABLE -o FILE` and no log")
        written = [getattr(out, field.name) for field in fields(Outputs) if field.name != "apply"]
        read = {path.resolve() for path in (*self.logs, out.apply, self.map_file) if path is not None}
        for path in written:
            if path is not None and path.resolve() in read:
                raise ConfigError(f"`{path}` would be read and written", "write to another file")
        _ = self.fractions

    @property
    def fractions(self) -> list[float]:
        """The study's anchor fractions, ascending; empty without a study."""
        if self.study is None:
            return []
        try:
            found = sorted({float(part) for part in self.study.split(",")})
        except ValueError:
            found = []
        if not found or not all(0 < fraction <= 1 for fraction in found):
            raise ConfigError(
                f"`--study {self.study}` is no list of fractions in (0, 1]", "such as `--study 0.05,0.1,0.2`"
            )
        return found

    @property
    def replays(self) -> int:
        """How many replays the study takes."""
        return len(self.fractions) * self.config.repeats + 1


@dataclass(frozen=True, kw_only=True)
class Done:
    """What came of a call; `analysis` is None where a saved map was applied."""

    written: dict[str, str]
    analysis: Analysis | None = None
    rows: int | None = None  # of the calibrated table

    def result(self) -> dict[str, Any]:
        """The result as plain values."""
        found: dict[str, Any] = {} if self.analysis is None else summary(self.analysis)
        return found | ({} if self.rows is None else {"rows": self.rows}) | {"written": self.written}


def run(
    request: Request,
    *,
    page: Callable[..., str],
    advance: Callable[[int], None] = lambda done: None,
) -> Done:
    """Do what the request asks. `page` renders the report. Raises ConfigError and TableError."""
    out, (low, high) = request.outputs, request.scale
    if request.map_file is not None and out.apply is not None and out.main is not None:
        saved = read_map(request.map_file)
        rows = apply_map(
            saved, out.apply, out.main, predicted=request.columns.get("predicted"), label=_label(request, saved.by)
        )
        return Done(written={"calibrated": str(out.main)}, rows=rows)
    log = read_log(
        request.logs,
        asked=request.columns,
        low=low,
        high=high,
        limit=request.limit,
        tasks=request.tasks,
        reward_turn=request.config.reward_turn,
    )
    _refuse_what_the_log_cannot_tell(request, log)
    analysis = analyse(log, request.config, compare=request.compare, fractions=request.fractions, advance=advance)
    return _write(request, analysis, page)


def _refuse_what_the_log_cannot_tell(request: Request, log: PairLog) -> None:
    by = request.config.by
    if by != "none" and getattr(log, by) is None:
        raise ConfigError(f"`--by {by}` needs the {by} of each pair", f"`--{by} COLUMN` names it" + _tasks_hint(by))
    if request.fractions and not log.has_groups:
        raise ConfigError("`--study` needs the groups of the log", "`--group COLUMN` names them")


def _tasks_hint(by: str) -> str:
    return ", or `--tasks FILE` gives each task's" if by == "category" else ""


def _label(request: Request, by: str) -> str | None:
    return request.columns.get(by)


def _write(request: Request, analysis: Analysis, page: Callable[..., str]) -> Done:
    out, (low, high), written, rows = request.outputs, request.scale, {}, None
    html = _report(request, analysis, page) if out.report is not None else ""
    if out.apply is not None and out.main is not None:
        saved = saved_map(analysis, low=low, high=high)
        by = request.config.by
        rows = apply_map(
            saved, out.apply, out.main, predicted=request.columns.get("predicted"), label=_label(request, by)
        )
        written["calibrated"] = str(out.main)
    elif out.main is not None:
        inputs = [str(path) for path in request.logs]
        write_json(as_json(analysis, low=low, high=high, inputs=inputs), out.main)
        written["calibration"] = str(out.main)
    write_online(analysis.log, analysis.config, out.online, out.online_steps)
    if out.online is not None:
        written["online pairs"] = str(out.online)
    if out.online_steps is not None:
        written["online steps"] = str(out.online_steps)
    if out.report is not None:
        target = out.report
        write_atomically(target, lambda scratch: Path(scratch).write_text(html, encoding="utf-8"))
        written["report"] = str(target)
    return Done(written=written, analysis=analysis, rows=rows)


def _report(request: Request, analysis: Analysis, page: Callable[..., str]) -> str:
    names = [path.name if str(path) != "-" else "standard input" for path in request.logs]
    return page(analysis, title="Calibration of " + ", ".join(names))
