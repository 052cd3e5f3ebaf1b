"""All work by turns; one that fails is left out, with the reason, and the others go on."""

from collections.abc import Callable

import pytest

from redline.bench.ladder.contenders import ContenderError, Turn
from redline.bench.ladder.progress import TURN, WARM_UP, Kind, TimeLeft
from redline.bench.ladder.rounds import Measured, take_turns, turn_order


class Worker:
    """Works, and fails from a turn on."""

    def __init__(self, *, fails_at: int | None = None) -> None:
        self.fails_at = fails_at
        self.turns = 0
        self.closed = 0

    def warm_up(self) -> None:
        """Count as the turn before the first."""
        self.take_turn(0.0)

    def take_turn(self, seconds: float) -> Turn:
        """Do as it was told."""
        if self.turns == self.fails_at:
            raise ContenderError("no such\ngame")
        self.turns += 1
        return Turn(seconds=1.0, steps=self.turns, updates=0, samples=0, cpu_share=0.0)

    def close(self) -> None:
        """Be closed, once."""
        self.closed += 1


def run(workers: dict[str, Worker], told: Callable[[str], None]) -> Measured:
    left = TimeLeft(told, {WARM_UP: Kind(len(workers), 0.0), TURN: Kind(2 * len(workers), guess_s=1.0)})
    makers = {name: lambda worker=worker: worker for name, worker in workers.items()}
    return take_turns(makers, needed="base", rounds=2, turn_s=0.0, left=left)  # type: ignore[arg-type]


def test_who_fails_is_left_out() -> None:
    workers = {"base": Worker(), "cold": Worker(fails_at=0), "late": Worker(fails_at=2)}
    said: list[str] = []
    measured = run(workers, said.append)
    assert [turn.steps for turn in measured.turns["base"]] == [2, 3]
    assert measured.turns.keys() == {"base"}
    assert measured.failed == dict.fromkeys(("cold", "late"), "failed: no such game")
    assert "left out: cold failed: no such game" in said
    assert [worker.closed for worker in workers.values()] == [1, 1, 1]
    assert measured.others_percent >= 0.0


def test_without_the_base_nothing_is_compared() -> None:
    workers = {"other": Worker(), "base": Worker(fails_at=1)}
    with pytest.raises(ContenderError):
        run(workers, lambda _: None)
    assert [worker.closed for worker in workers.values()] == [1, 1]


def test_the_first_place_of_a_round_goes_round() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    orders = [turn_order(names, number, rounds=3) for number in range(3)]
    assert all(sorted(order) == names for order in orders)
    assert [order[0] for order in orders] == ["a", "c", "e"]
    assert orders[1] == ["c", "b", "a", "f", "e", "d"]  # backwards
