"""The goal of a search: it turns the curves of runs into one score; a higher score is always better."""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any, Literal, NamedTuple, Self

import msgspec

from redline.errors import UserError, unknown_name
from redline.jsonl import Row, measured, plain_text
from redline.units import number

Kind = Literal["minutes-to-return", "steps-to-return", "return-at-minutes", "return-at-steps"]
EXAMPLES: dict[Kind, str] = {
    "minutes-to-return": "minutes-to-return:18",
    "steps-to-return": "steps-to-return:400",
    "return-at-minutes": "return-at-minutes",
    "return-at-steps": "return-at-steps:100_000",
}


@dataclass(frozen=True)
class RunResult:
    """The result of one run with one seed."""

    seed: int
    run: str  # its directory, below the study's
    steps: int = 0
    minutes: float = 0.0  # of training
    episodes: int = 0
    mean_return: float | None = None  # of the last episodes
    best_mean_return: float | None = None  # None if there were too few episodes for a whole window
    reached_steps: int | None = None
    reached_minutes: float | None = None
    failure: str = ""  # why the run failed; empty if it did not

    @classmethod
    def from_row(cls, row: Any) -> Self:
        """Return the result in a row; ValidationError if there is none."""
        found = msgspec.convert(row, cls)
        return replace(found, run=plain_text(found.run), failure=plain_text(found.failure))

    def row(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return asdict(self)


class Moment(NamedTuple):
    """Where a run was when an episode ended."""

    steps: int
    time_s: float
    mean: float


class Curve:
    """The mean return of a run's newest episodes over time, and when it first reached a target."""

    def __init__(self, window: int, target: float | None) -> None:
        self._recent: deque[float] = deque(maxlen=window)
        self._target = target
        self._moments: list[Moment] = []
        self.steps = 0
        self.time_s = 0.0
        self.best_mean: float | None = None  # over a whole window
        self.reached: Moment | None = None  # when the target was reached

    @property
    def mean(self) -> float | None:
        """Mean return of the window, or of all episodes if they are fewer."""
        return self._moments[-1].mean if self._moments else None

    def mean_at(self, *, steps: float = math.inf, time_s: float = math.inf) -> float | None:
        """Return the newest mean by these steps and this time, or the first one after."""
        by_then = bisect_right(self._moments, False, key=lambda moment: moment.steps > steps or moment.time_s > time_s)
        return self._moments[max(by_then - 1, 0)].mean if self._moments else None

    def add_episode(self, row: Row) -> None:
        """Add a row of episodes.jsonl; evaluations do not count."""
        episode_return = measured(row.get("return"))
        if episode_return is None or row.get("role") != "actor":
            return
        self._recent.append(episode_return)
        self.add_reading(row)
        mean = fmean(self._recent)
        self._moments.append(Moment(self.steps, self.time_s, mean))
        if len(self._recent) == self._recent.maxlen:
            self.best_mean = mean if self.best_mean is None else max(mean, self.best_mean)
            if self._target is not None and self.reached is None and mean >= self._target:
                self.reached = self._moments[-1]

    def add_reading(self, row: Row) -> None:
        """Add how far the run is, from any row with steps and time."""
        self.steps = max(self.steps, int(measured(row.get("steps")) or 0))
        self.time_s = max(self.time_s, float(measured(row.get("time_s")) or 0.0))

    def result(self, *, seed: int, run: str, failure: str = "") -> RunResult:
        """Return the result of a run with this curve."""
        return RunResult(
            seed=seed,
            run=run,
            steps=self.steps,
            minutes=self.time_s / 60,
            episodes=len(self._moments),
            mean_return=self.mean,
            best_mean_return=self.best_mean,
            reached_steps=None if self.reached is None else self.reached.steps,
            reached_minutes=None if self.reached is None else self.reached.time_s / 60,
            failure=failure,
        )


@dataclass(frozen=True)
class Goal:
    """Reach a return sooner, or a higher return at a given time."""

    kind: Kind
    number: float | None = None  # the return to reach, or the steps at which it is read

    @property
    def target_return(self) -> float | None:
        """The return to reach, if that is the goal."""
        return self.number if self.kind.endswith("to-return") else None

    @property
    def max_steps(self) -> int | None:
        """The steps after which a run may end."""
        return int(self.number) if self.kind == "return-at-steps" and self.number is not None else None

    @property
    def counts_steps(self) -> bool:
        """Whether a run is measured in steps, not in minutes."""
        return self.kind in ("steps-to-return", "return-at-steps")

    @property
    def unit(self) -> str:
        """Unit of the goal's values."""
        return self.kind.removesuffix("-to-return") if self.target_return is not None else "return"

    def _amount(self, result: RunResult) -> float | None:
        """Return the value of one run; None if it failed or did not reach the goal."""
        if result.failure:
            return None
        if self.kind == "minutes-to-return":
            return result.reached_minutes
        return result.reached_steps if self.kind == "steps-to-return" else result.mean_return

    def value(self, results: Sequence[RunResult]) -> float | None:
        """Return the mean value of the runs of one setting in the goal's unit; None unless each has one."""
        amounts = [amount for result in results if (amount := self._amount(result)) is not None]
        return fmean(amounts) if amounts and len(amounts) == len(results) else None

    def score(self, results: Sequence[RunResult]) -> float:
        """Return one number for the runs of one setting with several seeds; higher is better.

        With a return to reach: above 0 if every run reached it, and higher the sooner they did on average; else below
        0, by how much the best means fell short on average. So settings that miss it rank behind those that do not.
        """
        value = self.value(results)
        if self.target_return is None:
            return -math.inf if value is None else value
        if value is not None:
            return 1.0 / (1.0 + value)
        return -fmean(self._shortfall(result) for result in results) if results else -math.inf

    def _shortfall(self, result: RunResult) -> float:
        if self._amount(result) is not None:
            return 0.0
        best = result.mean_return if result.best_mean_return is None else result.best_mean_return
        # a run that failed after it reached the target counts as one that missed it
        return math.inf if best is None or self.target_return is None else max(self.target_return - best, 1e-9)

    def describe(self, results: Sequence[RunResult]) -> str:
        """Describe the results of one setting in a few words."""
        value = self.value(results)
        if value is not None:
            return _in_unit(value, self.unit)
        if self.target_return is None:
            return "–"
        count = sum(self._amount(result) is not None for result in results)
        reached = f"{count} of {len(results)} reached {self.target_return:g}"
        reached = f"{self.target_return:g} not reached" if len(results) == 1 else reached
        best = [result.best_mean_return for result in results if result.best_mean_return is not None]
        return f"{reached}, best {_in_unit(fmean(best), 'return')}" if best else reached

    def __str__(self) -> str:
        return self.kind if self.number is None else f"{self.kind}:{self.number:.15g}"


def _in_unit(value: float, unit: str) -> str:
    if unit == "steps":
        return f"{value:,.0f} steps"
    return f"{number(value)} min" if unit == "minutes" else number(value, 1)


def describe_run(goal: Goal, result: RunResult) -> str:
    """Describe the result of one run."""
    return f"failed: {result.failure}" if result.failure else goal.describe([result])


def parse_goal(text: str) -> Goal:
    """Return the goal that the user typed, or raise UserError in one line."""
    typed, colon, rest = text.strip().lower().partition(":")
    kind = next((name for name in EXAMPLES if name == typed), None)
    if kind is None:
        raise unknown_name("goal", typed, EXAMPLES)
    if kind == "return-at-minutes":
        if colon:
            raise UserError(f"--goal {text}: the minutes are those of --minutes-per-trial: use --goal {kind}")
        return Goal(kind)
    try:
        value = float(rest)
    except ValueError:
        raise UserError(f"--goal {text} needs a number: --goal {EXAMPLES[kind]}") from None
    if not math.isfinite(value) or (kind == "return-at-steps" and not (value >= 1 and value.is_integer())):
        raise UserError(f"--goal {text} has no number that can be reached: --goal {EXAMPLES[kind]}")
    return Goal(kind, value)


@dataclass(frozen=True)
class Verdict:
    """The check of the trial that won the search: its results and the defaults', on the same unused seeds."""

    trial: int
    settings: Mapping[str, Any]  # those that vary
    winner: tuple[RunResult, ...]
    default: tuple[RunResult, ...]
    is_default: bool = False  # the trial has the default settings: the same runs count for both
    repeated: tuple[str, ...] = ()  # failures of runs that were trained again, in words

    def runs(self) -> list[tuple[str, RunResult]]:
        """Return every run, with whose settings it has."""
        winner = () if self.is_default else self.winner
        return [*(("winner", result) for result in winner), *(("default", result) for result in self.default)]

    def is_better(self, goal: Goal) -> bool:
        """Tell whether the winner beats the default."""
        return goal.score(self.winner) > goal.score(self.default)

    def describe(self, goal: Goal) -> str:
        """Describe both results, and which one is better."""
        better = "the winner is better" if self.is_better(goal) else "the winner is not better"
        better = "the search found nothing better than the defaults" if self.is_default else better
        return f"winner {goal.describe(self.winner)}, default {goal.describe(self.default)}: {better}"
