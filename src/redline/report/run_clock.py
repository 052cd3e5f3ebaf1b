"""The clock of a run, without the time in which it was stopped, and how much of it the hardware samples cover."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redline.jsonl import Row
from redline.monitor.hardware import flat
from redline.report.rows import moment, number, one_line

if TYPE_CHECKING:
    from redline.report.run_files import RunFiles  # which itself looks at the clock

# a gap of no more is no pause: a resume tells that the run was stopped, but a monitor may just be slow to start
MIN_PAUSE_S = {"resume": 0.0, "monitor-start": 60.0}
MAX_START_UP_S = 600.0  # before the first row; what lies further back is another run's clock
ENOUGH_COVER = 0.95  # of a run by samples, beside its start-up
START_UP_S = 30.0  # that may pass before the first sample and after the last,
START_UP_SHARE = 0.05  # but no more of a short run than this
LEAST_COVER = 0.5  # of the time of learning: a mean over less is not shown
LEAST_LEARNING_S = 2.0  # a shorter span between rows says nothing of the hardware while learning

LEAST_S = 1e-6  # what the wall clock, as a double, can tell apart
LEARNING, RECORDING = "learning", "recording"

Span = tuple[float, float]


@dataclass(frozen=True)
class RunClock:
    """Turns the wall clock into minutes of the run."""

    begin_unix_s: float
    end_unix_s: float
    pauses: tuple[tuple[float, float], ...]  # (begin, end) by the wall clock, in order, disjoint

    def minutes(self, unix_s: float) -> float:
        """Return the minutes from the start; a moment in a pause is its beginning."""
        paused_s = sum(min(max(unix_s - begin_s, 0.0), end_s - begin_s) for begin_s, end_s in self.pauses)
        return (unix_s - self.begin_unix_s - paused_s) / 60.0

    @property
    def total_s(self) -> float:
        """Seconds from the start to the last row, without pauses."""
        return self.minutes(self.end_unix_s) * 60.0


def run_clock(run: RunFiles) -> RunClock | None:
    """Return the clock of a run, None where no row tells a time."""
    rows = (run.metrics, run.episodes, run.events, run.hardware)
    moments = sorted(unix_s for kind in rows for row in kind if (unix_s := moment(row)) is not None)
    if not moments:
        return None
    first_s = moments[0]
    if run.hardware:
        first_s = min(first_s, run.hardware[0]["unix_s"] - run.hardware[0]["interval_s"])
    created_s = None if run.run is None else number(run.run, "created_unix_s")
    if created_s is not None and 0 <= first_s - created_s <= MAX_START_UP_S:
        first_s = created_s
    begins = sorted(
        (unix_s, MIN_PAUSE_S[row["event"]])
        for row in run.events
        if row["event"] in MIN_PAUSE_S and (unix_s := moment(row)) is not None
    )
    return RunClock(first_s, moments[-1], tuple(_pauses(moments, begins)))


def _pauses(moments: Sequence[float], begins: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the gaps before a resume or a new recording: only these show that nothing ran."""
    found: list[tuple[float, float]] = []
    for begin_s, least_s in begins:
        place = bisect_left(moments, begin_s)
        pause = (moments[place - 1], begin_s) if place > 0 else (begin_s, begin_s)
        if pause[1] - pause[0] > least_s and pause not in found[-1:]:
            found.append(pause)
    return found


def covered_share(run: RunFiles) -> float:
    """Return the share of a run that samples of the hardware cover, 0 … 1."""
    clock = run_clock(run)
    covered_s = sum(row["interval_s"] for row in run.hardware)
    if clock is None or covered_s == 0:
        return 0.0
    return float(covered_s / max(clock.total_s, covered_s))


def is_covered(run: RunFiles) -> bool:
    """Tell whether samples cover the run, but for its start-up."""
    clock = run_clock(run)
    if clock is None or clock.total_s <= 0:
        return bool(run.hardware)
    return covered_share(run) + min(START_UP_S / clock.total_s, START_UP_SHARE) > ENOUGH_COVER


def while_learning(run: RunFiles) -> list[Row]:
    """Return the rows of metrics.jsonl after the first update."""
    return [row for row in run.metrics if (number(row, "updates") or 0.0) > 0]


def learning_span(run: RunFiles) -> Span | None:
    """Return when the run learnt by the wall clock, None where it does not tell or was too short."""
    rows = while_learning(run)
    if not rows or rows[-1]["unix_s"] - rows[0]["unix_s"] < LEAST_LEARNING_S:
        return None
    return float(rows[0]["unix_s"]), float(rows[-1]["unix_s"])


def use_span(run: RunFiles) -> tuple[Span, str] | None:
    """Return the span that means of the hardware are over, and its name: that of learning, else of the recording."""
    learning = learning_span(run)
    if learning is not None:
        return learning, LEARNING
    if not run.hardware:
        return None
    return (run.hardware[0]["unix_s"] - run.hardware[0]["interval_s"], run.hardware[-1]["unix_s"]), RECORDING


def learning_cover(run: RunFiles) -> float | None:
    """Return the share of the time of learning in which the use of the processor was sampled."""
    span = learning_span(run)
    rows = [row for row in run.hardware if number(row, "cpu_cores_used") is not None]
    return None if span is None else _overlap_s(rows, span) / _length_s(run, span)


def gpu_covers(run: RunFiles) -> dict[str, float]:
    """Return the share of that span in which each GPU's utilisation was sampled, by its flat name."""
    over = use_span(run)
    sampled: dict[str, list[Row]] = {}
    for row in run.hardware:
        for name in flat({"gpus": row.get("gpus")}):
            if name.endswith(".utilisation_percent"):
                sampled.setdefault(name, []).append(row)
    if over is None or not sampled:
        return {}
    length_s = _length_s(run, over[0])
    return {name: _overlap_s(rows, over[0]) / length_s for name, rows in sorted(sampled.items())}


def _length_s(run: RunFiles, span: Span) -> float:
    """Return the seconds of a span, without those in which the run was stopped."""
    clock = run_clock(run)
    begin_s, end_s = span if clock is None else (clock.minutes(at_s) * 60.0 for at_s in span)
    return max(end_s - begin_s, LEAST_S)


def _overlap_s(rows: Iterable[Row], span: Span) -> float:
    ends = ((max(row["unix_s"] - row["interval_s"], span[0]), min(row["unix_s"], span[1])) for row in rows)
    return float(sum(max(end_s - begin_s, 0.0) for begin_s, end_s in ends))


def what_is_not_covered(run: RunFiles) -> list[str]:
    """Say of what part of the run its sums and means are, where they are not of all."""
    told = []
    if run.hardware and not is_covered(run):
        told.append(
            f"hardware.jsonl covers {covered_share(run):.0%} of the time between the first and the last row: "
            "CPU seconds, GPU seconds and energy are those of that part."
        )
    cover = learning_cover(run)
    if run.hardware and cover is not None and cover < LEAST_COVER:
        told.append(f"Samples cover {cover:.0%} of the time of learning: its CPU use is unknown.")
    over = use_span(run)
    return told + ([] if over is None else _gpus_not_covered(gpu_covers(run), over[1]))


def _gpus_not_covered(covers: Mapping[str, float], over: str) -> list[str]:
    time = "the time of learning" if over == LEARNING else "the recording"
    told = []
    for name, cover in covers.items():
        if cover <= ENOUGH_COVER - START_UP_SHARE:
            then = "is left out" if cover < LEAST_COVER else "is of that part"
            index = one_line(name.removeprefix("gpus.").removesuffix(".utilisation_percent"))
            told.append(f"GPU {index} was sampled in {cover:.0%} of {time}: its mean utilisation {then}.")
    return told
