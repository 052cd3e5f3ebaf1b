"""Which of several ways to run a training is fastest: successive halving over windows by turns, then fresh rounds.

Nothing here knows of processes: `measure` runs a candidate for a window, the clock tells what is left of the budget.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import NamedTuple

from redline.bench.measuring import MAX_BUSY_PERCENT, Progress, silent
from redline.report.statistics import mean_interval

FIRST_ROUNDS, LATER_ROUNDS = 3, 2  # of a step of the halving
FINALISTS = 2  # beside the default
LEAST_FINAL_ROUNDS, MOST_FINAL_ROUNDS = 5, 9
MOST_REPEATS = 10  # of disturbed windows, in all
LEAST_GAIN = 1.01  # of a change that is combined with others: less is mostly noise


class CandidateLostError(Exception):
    """A candidate can't be measured any more, for the reason that it says."""


@dataclass(frozen=True)
class RoleUse:
    """What one process of a candidate took in a window."""

    cores: float
    memory_bytes: int


@dataclass(frozen=True)
class Window:
    """What a candidate did in a few seconds, as its process tells it."""

    steps: int
    updates: int
    seconds: float
    others_percent: float = 0.0  # share of all cores that other processes used meanwhile
    weights_age_updates: float = 0.0
    gpu_memory_bytes: int | None = None  # of an inline run; None without a GPU
    phases: Mapping[str, float] = field(default_factory=dict)  # share of an inline run's time by phase
    waits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # share of the time by role and reason
    roles: Mapping[str, RoleUse] = field(default_factory=dict)

    @property
    def steps_per_s(self) -> float:
        """Speed in the window."""
        return self.steps / self.seconds


def roles_of(windows: Sequence[Window]) -> dict[str, RoleUse]:
    """Return what each process of a candidate takes: usual cores, most memory."""
    uses: dict[str, list[RoleUse]] = {}
    for window in windows:
        for name, use in window.roles.items():
            uses.setdefault(name, []).append(use)
    return {
        name: RoleUse(median(use.cores for use in found), max(use.memory_bytes for use in found))
        for name, found in uses.items()
    }


Measure = Callable[[str, float], Window]  # a candidate's name, and until when its window must be over


class Gain(NamedTuple):
    """How many times as fast as the default, and the 90 % interval of that."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class Standing:
    """How a candidate did."""

    windows: Sequence[Window] = ()  # those that count: one for each round
    gain: Gain | None = None  # by the final rounds, if it came that far, else by those before; None: too few
    final_rounds: int = 0
    why_lost: str | None = None


@dataclass(frozen=True)
class Choice:
    """What was chosen, and how all did."""

    name: str
    why: str
    standings: Mapping[str, Standing]
    repeats: int  # windows that were measured again because others disturbed them
    disturbed: int  # windows that count although others disturbed them: no repeats were left
    others_percent: float  # usual share of all cores that others used


@dataclass
class Race:
    """Candidates against a default, by turns, until the budget is spent."""

    default: str
    measure: Measure
    ends_s: float  # by the clock
    clock_s: Callable[[], float] = time.monotonic
    progress: Progress = silent
    repeats: int = 0
    disturbed: int = 0
    rounds: list[dict[str, Window]] = field(default_factory=list)
    first_final_round: int | None = None
    why_lost: dict[str, str] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)  # of the candidates beside the default
    _others_percent: list[float] = field(default_factory=list)
    _window_s: float = 0.0  # that the longest took, with its sleep

    def halve(self, names: Sequence[str], *, shown: Sequence[str] = (), then_s: float = 0.0) -> list[str]:
        """Return the fastest of the candidates, at most `FINALISTS`, and keep time for the final rounds.

        After the first step `then_s` is kept as well. Those in `shown` are measured in that step beside the others, and
        never returned.
        """
        alive, beside, rounds, kept_s = list(names), list(shown), FIRST_ROUNDS, 0.0
        self._names += [*names, *shown]
        while True:
            self.progress(f"{len(alive) + len(beside)} candidates beside the default")
            for _ in range(rounds):
                playing = [name for name in (*alive, *beside) if name not in self.why_lost]
                needed_s = (len(playing) + 1) * self._window_s + self.final_s + kept_s
                if self.left_s < needed_s or not self.play_round(playing):
                    return self._best(alive, FINALISTS)
            alive = self._best(alive, max(FINALISTS, len(alive) // 2))
            if len(alive) <= FINALISTS:
                return alive
            beside, rounds, kept_s = [], LATER_ROUNDS, then_s

    @property
    def final_s(self) -> float:
        """What the final rounds take at least, with one finalist more."""
        return LEAST_FINAL_ROUNDS * (FINALISTS + 2) * self._window_s

    def _best(self, names: Sequence[str], count: int) -> list[str]:
        known = [name for name in names if name not in self.why_lost and self.ratios(name)]
        return sorted(known, key=lambda name: -fmean(map(math.log, self.ratios(name))))[:count]

    def compare(self, finalists: Sequence[str]) -> None:
        """Measure the finalists in fresh rounds, until they are slower beyond doubt or no time is left.

        Fresh ones, because those that made them finalists flatter them.
        """
        self.first_final_round = len(self.rounds)
        for number in range(MOST_FINAL_ROUNDS):
            alive = [name for name in finalists if name not in self.why_lost and not self._is_slower(name)]
            if not alive or self.left_s < (len(alive) + 1) * self._window_s:
                return
            self.progress(f"final round {number + 1} of at most {MOST_FINAL_ROUNDS}")
            if not self.play_round(alive):
                return

    def _is_slower(self, name: str) -> bool:
        final = self.ratios(name, first_round=self.first_final_round or 0)
        gain = gain_of(final) if len(final) >= LEAST_FINAL_ROUNDS else None
        return gain is not None and gain.high < 1.0

    @property
    def left_s(self) -> float:
        """What is left of the budget."""
        return self.ends_s - self.clock_s()

    def play_round(self, names: Sequence[str]) -> bool:
        """Measure the default and some candidates once, in rotating order; False if the default is lost or time over.

        A round that time cuts short does not count, and nobody is lost by it.
        """
        order = [self.default, *names]
        start = len(self.rounds) % len(order)
        found: dict[str, Window] = {}
        for name in (*order[start:], *order[:start]):
            try:
                found[name] = self._calm_window(name)
            except CandidateLostError as lost:
                if self.left_s <= 0.0:
                    return False
                self.why_lost[name] = str(lost)
        if self.default not in found:
            return False
        self.rounds.append(found)
        return True

    def _calm_window(self, name: str) -> Window:
        """Return a window of a candidate, measured again as long as others disturb it and the bounds allow."""
        while True:
            begun_s = self.clock_s()
            window = self.measure(name, self.ends_s)
            self._window_s = max(self._window_s, self.clock_s() - begun_s)
            self._others_percent.append(window.others_percent)
            if window.others_percent <= self.usual_percent + MAX_BUSY_PERCENT:
                return window
            if self.repeats >= MOST_REPEATS or self.left_s < 2 * self._window_s:
                self.disturbed += 1
                return window
            self.repeats += 1

    @property
    def usual_percent(self) -> float:
        """Share of all cores that others usually use: what is always there disturbs no comparison."""
        return median(self._others_percent) if self._others_percent else 0.0

    def ratios(self, name: str, *, first_round: int = 0) -> list[float]:
        """Return how many times as fast as the default a candidate was, round by round."""
        return [
            found[name].steps_per_s / found[self.default].steps_per_s
            for found in self.rounds[first_round:]
            if name in found and found[name].steps
        ]

    def choose(self) -> Choice:
        """Choose the fastest finalist that is faster than the default beyond doubt, else the default."""
        names = list(dict.fromkeys([*(name for found in self.rounds for name in found), *self.why_lost]))
        standings = {name: self._standing(name) for name in names}
        gains = {
            name: standing.gain
            for name, standing in standings.items()
            if standing.gain is not None and standing.final_rounds >= LEAST_FINAL_ROUNDS and standing.why_lost is None
        }
        faster = {name: gain for name, gain in gains.items() if gain.low > 1.0 and name != self.default}
        best = max(faster, key=lambda name: faster[name].ratio, default=self.default)
        if best != self.default:
            why = f"measured {gain_words(faster[best])} the speed of the default, 90 % interval"
        elif self.default in self.why_lost:
            why = f"the default can't be measured any more: {self.why_lost[self.default]}"
        elif gains.keys() - {self.default}:
            why = "nothing was faster beyond doubt, and a tie keeps the default"
        elif any(name not in self.why_lost for name in self._names):
            why = "the time was too short to tell a difference: use more --seconds"
        else:
            why = "no other candidate could be measured"
        return Choice(best, why, standings, self.repeats, self.disturbed, self.usual_percent)

    def _standing(self, name: str) -> Standing:
        first = self.first_final_round
        final = [] if first is None else self.ratios(name, first_round=first)
        return Standing(
            windows=[found[name] for found in self.rounds if name in found],
            gain=gain_of(final) if final else gain_of(self.ratios(name)),
            final_rounds=len(final),
            why_lost=self.why_lost.get(name),
        )


def gain_of(ratios: Sequence[float]) -> Gain | None:
    """Return the mean of paired ratios and its 90 % interval by Student's t, both of the logarithms."""
    logs = [math.log(ratio) for ratio in ratios]
    interval = mean_interval(logs)
    return None if interval is None else Gain(math.exp(fmean(logs)), math.exp(interval[0]), math.exp(interval[1]))


def gain_words(gain: Gain) -> str:
    """Return a gain in words."""
    return f"{gain.ratio:.2f} × ({gain.low:.2f}–{gain.high:.2f})"


def combination(changes: Mapping[str, Mapping[str, object]], race: Race) -> dict[str, object]:
    """Return the changes that helped alone, together: of two for one knob the better one; {} if fewer than two helped.

    A change that comes with others, such as a number of actors with a topology, is taken with all of them.
    """
    helped = {name: fmean(map(math.log, ratios)) for name in changes if (ratios := race.ratios(name))}
    together: dict[str, object] = {}
    parts = 0
    for name in sorted(helped, key=lambda name: -helped[name]):
        change = changes[name]
        fits = all(together.get(key, value) == value for key, value in change.items())
        if helped[name] > math.log(LEAST_GAIN) and fits and not change.items() <= together.items():
            together |= change
            parts += 1
    return together if parts > 1 else {}
