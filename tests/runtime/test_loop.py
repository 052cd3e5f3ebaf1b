"""The loop: what counts as training time, and when something is due."""

import time
from typing import Any, ClassVar

import pytest

from redline.runtime import loop as module
from redline.runtime.counters import Counters
from redline.runtime.loop import Every, Loop, busy_shares
from redline.runtime.training import PHASES, DeviceStopwatch, Stopwatch


class Clock:
    """A time that goes on only by hand."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


class Steps:
    """A trainer whose steps take two seconds each, and bring as many steps as it is told."""

    def __init__(self, clock: Clock, steps: list[int]) -> None:
        self.counters, self.phases, self.waited_s = Counters(), Stopwatch(), {"envs": 0.0}
        self._clock, self._steps = clock, iter(steps)

    def vector_step(self) -> list[Any]:
        self._clock.now_s += 2.0
        self.counters.steps += next(self._steps)
        return []


def loop_of(clock: Clock, *steps: int) -> tuple[Loop, Any]:
    trainer: Any = Steps(clock, list(steps))
    return Loop(trainer, folder=None), trainer  # type: ignore[arg-type]


def test_time_counts_from_the_first_step_on(clock: Clock) -> None:
    loop, trainer = loop_of(clock, 0, 0, 4, 4)
    for _ in range(2):  # actors are being started
        loop.step()
    assert (trainer.counters.time_s, loop.invocation_s) == (0.0, 0.0)
    loop.step()
    loop.step()
    assert (trainer.counters.time_s, loop.invocation_s) == (4.0, 4.0)


def test_what_happens_between_steps_counts_unless_it_is_a_pause(clock: Clock) -> None:
    loop, trainer = loop_of(clock, 4, 4, 4)
    loop.step()
    clock.now_s += 0.5  # rows are written
    loop.step()
    with loop.pause():
        clock.now_s += 100.0  # an evaluation is played
    loop.step()
    assert trainer.counters.time_s == 6.5


def test_beginning_again_forgets_what_was_before(clock: Clock) -> None:
    loop, trainer = loop_of(clock, 4)
    clock.now_s += 50.0
    loop.begin()
    loop.step()
    assert trainer.counters.time_s == 2.0


def test_a_reading_is_due_every_second(clock: Clock) -> None:
    loop, _ = loop_of(clock)
    assert not loop.reading_is_due()
    clock.now_s += 1.0
    assert loop.reading_is_due()
    assert not loop.reading_is_due()


def test_an_interval_begins_when_something_was_done(clock: Clock) -> None:
    at_once, later = Every(5.0, at_once=True), Every(5.0)
    assert (at_once.is_due(), later.is_due()) == (True, False)
    clock.now_s += 7.0
    assert (at_once.is_due(), later.is_due()) == (True, True)
    clock.now_s += 4.0
    assert (at_once.is_due(), later.is_due()) == (False, False)


class PhaseClock:
    """Stands still unless it is told to go on."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def go_on(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def phase_clock(monkeypatch: pytest.MonkeyPatch) -> PhaseClock:
    clock = PhaseClock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


def test_every_moment_belongs_to_one_phase(phase_clock: PhaseClock) -> None:
    watch = Stopwatch()
    phase_clock.go_on(2.0)
    watch.lap("learn")
    phase_clock.go_on(0.5)
    watch.lap("keep")
    phase_clock.go_on(1.0)
    watch.lap("learn")
    assert watch.seconds == dict.fromkeys(PHASES, 0.0) | {"learn": 3.0, "keep": 0.5}


def test_what_is_skipped_belongs_to_none(phase_clock: PhaseClock) -> None:
    watch = Stopwatch()
    phase_clock.go_on(2.0)
    watch.skip()
    phase_clock.go_on(0.5)
    watch.lap("learn")
    assert watch.seconds["learn"] == 0.5
    phase_clock.go_on(2.0)
    watch.lap("act")
    watch.forget()
    assert set(watch.seconds.values()) == {0.0}


class FakeMark:
    """A CUDA event of a GPU that is behind: it has come only as far as `reached`."""

    reached, now_ms = 0, 0.0
    made: ClassVar[list["FakeMark"]] = []

    def __init__(self) -> None:
        self.number, self.at_ms = len(self.made), FakeMark.now_ms
        self.made.append(self)

    def query(self) -> bool:
        return self.number <= FakeMark.reached

    def elapsed_time(self, end: "FakeMark") -> float:
        return end.at_ms - self.at_ms


def test_on_a_gpu_a_phase_ends_when_the_gpu_has_done_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeMark, "made", [])
    watch = DeviceStopwatch(FakeMark)
    monkeypatch.setattr(FakeMark, "now_ms", 2_000.0)  # when the GPU will be there
    watch.lap("learn")
    assert watch.seconds["learn"] == 0.0  # it is not there yet, and nobody waits
    monkeypatch.setattr(FakeMark, "reached", 1)
    monkeypatch.setattr(FakeMark, "now_ms", 2_500.0)
    watch.lap("keep")
    assert (watch.seconds["learn"], watch.seconds["keep"]) == (2.0, 0.0)
    monkeypatch.setattr(FakeMark, "reached", 3)
    watch.skip()
    watch.lap("act")
    assert (watch.seconds["learn"], watch.seconds["keep"], watch.seconds["act"]) == (2.0, 0.5, 0.0)
    watch.forget()
    monkeypatch.setattr(FakeMark, "reached", 9)
    watch.lap("other")
    assert watch.seconds["act"] == 0.0  # what began before it was forgotten does not count


def test_waiting_is_not_work() -> None:
    spent_s = {"act": 1.0, "draw": 2.0, "learn": 4.0, "keep": 2.0, "other": 1.0}
    waited_s = {"envs": 1.5, "gather": 0.5, "rest": 9.0}
    busy = busy_shares(spent_s, waited_s, seconds=10.0)
    assert busy == pytest.approx({"act": 0.1, "draw": 0.15, "learn": 0.4, "keep": 0.05, "other": 0.1})
