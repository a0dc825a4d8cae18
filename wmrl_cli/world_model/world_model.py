"""A language model in the sandbox's place: it predicts how a script would end, and the agent cannot tell."""

from __future__ import annotations

from collections.abc import Sequence

from wmrl_cli.engines.base import Engine
from wmrl_cli.engines.chat import defuse
from wmrl_cli.environment import Attempt, Outcome, Scorer, Verdict
from wmrl_cli.errors import StageError
from wmrl_cli.maths.outcomes import RewardLadder, Status
from wmrl_cli.prompts.base import PromptPack
from wmrl_cli.prompts.observation import predicted_observation
from wmrl_cli.sandbox.gate import gate
from wmrl_cli.world_model.aggregate import Forecast, forecast, lost_because, score_at
from wmrl_cli.world_model.experts import consult, encode


class WorldModel:
    """Eight experts on one frozen model, behind the interface of the real environment.

    A script without code or that does not compile never reaches the model. Everything else is asked about in
    one batch. `packages` are those of the sandbox, as `name==version`; `show_score` says whether the agent reads
    its score and position, and should be the sandbox's.
    """

    def __init__(
        self,
        engine: Engine,
        pack: PromptPack,
        *,
        ladder: RewardLadder | None = None,
        packages: Sequence[str] = (),
        show_score: bool = True,
    ) -> None:
        self.engine, self.pack = engine, pack
        self.ladder, self.packages, self.show_score = ladder or RewardLadder(), tuple(packages), show_score
        self.weights_digest = engine.digest

    @property
    def scorer(self) -> Scorer:
        return "world_model"

    def step(self, attempts: Sequence[Attempt]) -> list[Outcome]:
        """One predicted outcome an attempt, in order. Raises UnavailableError where the engine is down."""
        outcomes = [gate(attempt.script, self.ladder) for attempt in attempts]
        open_rows = [row for row, outcome in enumerate(outcomes) if outcome is None]
        if open_rows:
            asked = [attempts[row] for row in open_rows]
            prefixes = [self._prefix(attempt) for attempt in asked]
            verdicts = consult(self.engine, self.pack, self.ladder, prefixes, [a.seed for a in asked])
            for row, attempt, opinion in zip(open_rows, asked, verdicts, strict=True):
                outcomes[row] = self._outcome(attempt, opinion)
        return [outcome for outcome in outcomes if outcome is not None]

    def check_frozen(self) -> None:
        """Raises StageError where the weights are no longer those that the world model started with."""
        if self.engine.digest != self.weights_digest:
            raise StageError(
                f"the world model's weights changed from `{self.weights_digest}` to `{self.engine.digest}`",
                "its scores are worth nothing: give the world model an engine of its own and run again",
            )

    def _prefix(self, attempt: Attempt) -> list[int]:
        script = defuse(self.engine.tokenizer, attempt.script or "")
        return encode(self.engine, self.pack.judge_prefix(self.engine.tokenizer, attempt.task, script, self.packages))

    def _outcome(self, attempt: Attempt, verdicts: tuple[Verdict, ...]) -> Outcome:
        if reason := lost_because(verdicts):
            return Outcome(
                status=Status.LOST,
                reward=None,
                observation=predicted_observation(Status.LOST),
                verdicts=verdicts,
                backend=self.pack.name,
                detail=reason,
            )
        expected = forecast(verdicts, self.ladder)
        raised = expected.cause if expected.status is Status.RUNTIME_ERROR else None
        return Outcome(
            status=expected.status,
            reward=expected.reward,
            q=expected.q,
            error_class=raised.error_class if raised else None,
            error_line=_line(raised, attempt.script or "") if raised else None,
            observation=self._observation(attempt, expected),
            verdicts=verdicts,
            backend=self.pack.name,
        )

    def _observation(self, attempt: Attempt, expected: Forecast) -> str:
        task, cause = attempt.task, expected.cause
        return predicted_observation(
            expected.status,
            script=attempt.script or "",
            output=(cause.output if cause else None) or "",
            error_class=cause.error_class if cause else None,
            line=cause.line if cause else None,
            metric=task.metric,
            raw_metric=score_at(expected.q, task.boards, higher_is_better=task.higher_is_better),
            q=expected.q,
            show_score=self.show_score,
        )


def _line(verdict: Verdict, script: str) -> int | None:
    """The line that a verdict names, None where the script has no such line."""
    lines = len(script.splitlines())
    return verdict.line if verdict.line is not None and 1 <= verdict.line <= lines else None
