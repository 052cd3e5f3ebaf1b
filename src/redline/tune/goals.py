"""The goal of a search: it turns the curves of runs into one score; a higher score is always better."""

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any, Literal, NamedTuple, Self

from redline.errors import UserError, unknown_name
from redline.jsonl import Row, measured, plain_text
from redline.runtime.counters import WINDOW_EPISODES
from redline.units import number

Kind = Literal["minutes-to-return", "steps-to-return", "return-at-minutes", "return-at-steps"]
EXAMPLES: dict[Kind, str] = {
    "minutes-to-return": "minutes-to-return:18",
    "steps-to-return": "steps-to-return:400",
    "return-at-minutes": "return-at-minutes",
    "return-at-steps": "return-at-steps:100_000",
}
ATARI_WINDOW_EPISODES = 10  # a short run has fewer than a hundred episodes


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
        self.episodes = 0
        self.steps = 0
        self.time_s = 0.0
        self.best_mean: float | None = None  # over a whole window
        self.reached_steps: int | None = None
        self.reached_s: float | None = None

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
        self.episodes += 1
        self.add_reading(row)
        mean = fmean(self._recent)
        self._moments.append(Moment(self.steps, self.time_s, mean))
        if len(self._recent) < (self._recent.maxlen or 0):
            return
        self.best_mean = mean if self.best_mean is None else max(mean, self.best_mean)
        if self._target is not None and self.reached_s is None and mean >= self._target:
            self.reached_steps, self.reached_s = self.steps, self.time_s

    def add_reading(self, row: Row) -> None:
        """Add how far the run is, from any row with steps and time."""
        self.steps = max(self.steps, int(measured(row.get("steps")) or 0))
        self.time_s = max(self.time_s, float(measured(row.get("time_s")) or 0.0))


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
    def of(cls, curve: Curve, *, seed: int, run: str, failure: str = "") -> Self:
        """Return the result of a run with this curve."""
        return cls(
            seed=seed,
            run=run,
            steps=curve.steps,
            minutes=curve.time_s / 60,
            episodes=curve.episodes,
            mean_return=curve.mean,
            best_mean_return=curve.best_mean,
            reached_steps=curve.reached_steps,
            reached_minutes=None if curve.reached_s is None else curve.reached_s / 60,
            failure=failure,
        )

    @classmethod
    def from_row(cls, row: Any) -> Self:
        """Return the result in a row; ValueError if there is none."""
        if not isinstance(row, dict) or not isinstance(row.get("seed"), int):
            raise ValueError("no result of a run")
        numbers = {name: measured(row.get(name)) for name in cls.__dataclass_fields__ if name not in _WORDS}
        for name in ("steps", "minutes", "episodes"):
            numbers[name] = numbers[name] or 0
        words = {name: plain_text(row.get(name) or "") for name in _WORDS}
        return cls(**numbers, **words)  # type: ignore[arg-type]  # each number was measured

    def row(self) -> dict[str, Any]:
        """Return the result as plain data."""
        return asdict(self)


_WORDS = ("run", "failure")


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

    def amount(self, result: RunResult) -> float | None:
        """Return the value of one run in the goal's unit, if it has one."""
        if self.kind == "minutes-to-return":
            return result.reached_minutes
        return result.reached_steps if self.kind == "steps-to-return" else result.mean_return

    def score(self, results: Sequence[RunResult]) -> float:
        """Return one number for the runs of one setting with several seeds; higher is better.

        With a return to reach: above 0 if every run reached it, and higher the sooner they did on average; else below
        0, by how much the best means fell short on average. So settings that miss it rank behind those that do not.
        """
        amounts = [None if result.failure else self.amount(result) for result in results]
        known = [amount for amount in amounts if amount is not None]
        if self.target_return is None:
            return fmean(known) if known and len(known) == len(results) else -math.inf
        if known and len(known) == len(results):
            return 1.0 / (1.0 + fmean(known))
        return -fmean(self._shortfall(result) for result in results) if results else -math.inf

    def _shortfall(self, result: RunResult) -> float:
        if self.amount(result) is not None and not result.failure:
            return 0.0
        best = result.mean_return if result.best_mean_return is None else result.best_mean_return
        # a run that failed after it reached the target counts as one that missed it
        return math.inf if best is None or self.target_return is None else max(self.target_return - best, 1e-9)

    def describe(self, results: Sequence[RunResult]) -> str:
        """Describe the results of one setting in a few words."""
        amounts = [amount for result in results if (amount := self._sound_amount(result)) is not None]
        if self.target_return is None:
            return "–" if len(amounts) < len(results) or not amounts else in_unit(fmean(amounts), "return")
        if amounts and len(amounts) == len(results):
            return in_unit(fmean(amounts), self.unit)
        best = [result.best_mean_return for result in results if result.best_mean_return is not None]
        reached = f"{len(amounts)} of {len(results)} reached {self.target_return:g}"
        reached = f"{self.target_return:g} not reached" if len(results) == 1 else reached
        return f"{reached}, best {in_unit(fmean(best), 'return')}" if best else reached

    def _sound_amount(self, result: RunResult) -> float | None:
        return None if result.failure else self.amount(result)

    def __str__(self) -> str:
        return self.kind if self.number is None else f"{self.kind}:{self.number:.15g}"


def in_unit(value: float, unit: str) -> str:
    """Return a value with its unit."""
    if unit == "steps":
        return f"{value:,.0f} steps"
    return f"{number(value)} min" if unit == "minutes" else number(value, 1)


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


def usual_window(*, is_atari: bool) -> int:
    """Return the default number of episodes over which a return is averaged."""
    return ATARI_WINDOW_EPISODES if is_atari else WINDOW_EPISODES


@dataclass(frozen=True)
class Verdict:
    """The results of winner and defaults on the same unused seeds."""

    winner: tuple[RunResult, ...]
    default: tuple[RunResult, ...]
    repeated: tuple[str, ...] = ()  # failures of runs that were trained again, in words

    def is_better(self, goal: Goal) -> bool:
        """Tell whether the winner beats the default."""
        return goal.score(self.winner) > goal.score(self.default)


def describe_run(goal: Goal, result: RunResult) -> str:
    """Describe the result of one run."""
    return f"failed: {result.failure}" if result.failure else goal.describe([result])
