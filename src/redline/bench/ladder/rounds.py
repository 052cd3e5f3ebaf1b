"""The rounds: all contenders made and warmed up, then at work by turns; whoever fails is left out, the others go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field

from redline.bench.ladder.contenders import FAILURES, Contender, Turn, in_one_line
from redline.bench.ladder.progress import TURN, WARM_UP, TimeLeft
from redline.bench.measuring import Told
from redline.bench.other_work import OtherWork


@dataclass(frozen=True)
class Measured:
    """What the rounds gave."""

    turns: Mapping[str, Sequence[Turn]]  # one per round, of all that took part to the end
    failed: Mapping[str, str]  # the others, and why
    others_percent: float  # the most that others used of the CPU in a round


def take_turns(
    makers: Mapping[str, Callable[[], Contender]], *, needed: str, rounds: int, turn_s: float, left: TimeLeft
) -> Measured:
    """Let each contender work once per round, in an order that turns; only a failure of the `needed` one is raised.

    What others do is seen round by round, so that a disturbance does not drown in all the rest.
    """
    turns: dict[str, list[Turn]] = {name: [] for name in makers}
    others_percent = 0.0
    with closing(Field(needed, left.told)) as entered:
        for name, make in makers.items():
            left.begin(WARM_UP, f"warming up {name}")
            entered.enter(name, make)
        for number in range(rounds):
            others = OtherWork()
            for name in turn_order(list(makers), number, rounds=rounds):
                if name in entered.failed:
                    left.skip(TURN)
                    continue
                left.begin(TURN, f"round {number + 1} of {rounds}: {name}")
                turns[name] += entered.take_turn(name, turn_s)
            others_percent = max(others_percent, others.percent())
    whole = {name: taken for name, taken in turns.items() if name not in entered.failed}
    return Measured(whole, entered.failed, others_percent)


@dataclass
class Field:
    """The contenders that take part; one that fails is closed at once."""

    needed: str  # without it nothing is compared
    told: Told
    contenders: dict[str, Contender] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def enter(self, name: str, make: Callable[[], Contender]) -> None:
        """Make a contender and warm it up."""
        with self._leaving_out(name):
            self.contenders[name] = make()
            self.contenders[name].warm_up()

    def take_turn(self, name: str, seconds: float) -> list[Turn]:
        """Return the turn that it took, or none."""
        with self._leaving_out(name):
            return [self.contenders[name].take_turn(seconds)]
        return []

    def close(self) -> None:
        """Close all that still take part."""
        with ExitStack() as stack:
            for contender in self.contenders.values():
                stack.callback(contender.close)

    @contextmanager
    def _leaving_out(self, name: str) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            if name == self.needed:
                raise
            self.failed[name] = f"failed: {in_one_line(error)}"
            self.told(f"left out: {name} {self.failed[name]}")
            if name in self.contenders:
                self.contenders.pop(name).close()


def turn_order(names: Sequence[str], number: int, *, rounds: int) -> list[str]:
    """Return who works when in a round: the first places are shared out over the rounds.

    Every other round goes backwards, so that nobody always follows the same one.
    """
    begin = number * max(len(names) // rounds, 1) % len(names)
    order = [*names[begin:], *names[:begin]]
    return order if number % 2 == 0 else [order[0], *order[:0:-1]]
