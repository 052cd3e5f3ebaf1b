"""How long the ladder will still take, from how long its parts of each kind took so far."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from redline.bench.measuring import Told
from redline.bench.time_left import in_words

WARM_UP, TURN, LEARNING = "warm-up", "turn", "learning"


@dataclass
class Kind:
    """Parts of one kind that are to be done."""

    left: int
    guess_s: float  # for each, before one was done
    done: int = 0
    spent_s: float = 0.0

    @property
    def left_s(self) -> float:
        """Seconds that those which are left will take."""
        return self.left * (self.spent_s / self.done if self.done else self.guess_s)


class TimeLeft:
    """Tells what is going on, with the time left."""

    def __init__(self, told: Told, kinds: Mapping[str, Kind]) -> None:
        self.told = told
        self._kinds = kinds
        self._under_way: Kind | None = None
        self._begun_s = time.monotonic()

    def begin(self, kind: str, text: str) -> None:
        """Tell that the next part of a kind begins, and with it that the one before has ended."""
        self.end()
        left_s = sum(item.left_s for item in self._kinds.values())
        self.told(f"{text}, {in_words(left_s)} left")
        self._under_way = self._kinds[kind]
        self._begun_s = time.monotonic()

    def skip(self, kind: str, parts: int = 1) -> None:
        """Count so many parts of a kind less: who would have done them is out."""
        self._kinds[kind].left -= parts

    def end(self) -> None:
        """Count what is under way as done."""
        if self._under_way is not None:
            self._under_way.left -= 1
            self._under_way.done += 1
            self._under_way.spent_s += time.monotonic() - self._begun_s
        self._under_way = None
