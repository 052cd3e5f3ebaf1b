"""What the slots of a fleet came to, from its files alone: states, runs, scores, curves, and when they trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from redline.fleet.listing import Listing, Slot
from redline.fleet.runner import run_folders
from redline.fleet.slots import RUNS, Book, SlotStatus
from redline.report.hardware_use import Processes, Span
from redline.report.relation import choose_runs
from redline.report.run_files import RunClock, RunFiles, load_run
from redline.report.run_series import Axis, Series, learning_curve, steps_of
from redline.report.run_summary import HEADLINE_EPISODES, RunSummary, summarise
from redline.report.statistics import Doubles

AXES: tuple[Axis, ...] = ("steps", "minutes")
MAX_CURVE_POINTS = 1_000  # of a run: the means of 20 episodes hardly differ between neighbours
NO_RUN, NO_EPISODE, NOT_READ = "it has no run yet", "no episode has ended", "its run can't be read"


@dataclass(frozen=True)
class Finding:
    """What the run of a slot came to. Its rows are gone: those of many runs would not fit."""

    files: RunFiles  # without rows
    summary: RunSummary
    curves: Mapping[Axis, Series]
    steps: Doubles  # at the ends of its training episodes
    returns: Doubles
    busy: tuple[Span, ...]  # when it trained, by the wall clock

    def score_at(self, steps: float) -> float | None:
        """Return the mean of the last 100 episodes that had ended by then."""
        until = self.returns[self.steps <= steps][-HEADLINE_EPISODES:]
        return float(until.mean()) if len(until) else None

    @property
    def busy_s(self) -> float:
        """Seconds of training by the wall clock."""
        return sum(end_s - begin_s for begin_s, end_s in self.busy)


@dataclass(frozen=True)
class Result:
    """One slot: how it stands, where it comes from, and what its run came to."""

    status: SlotStatus
    since: int  # version of the list that brought it: 1, 2, …
    is_listed: bool  # in the newest version
    finding: Finding | None = None
    left_out: str = ""  # why its score does not count

    @property
    def slot(self) -> Slot:
        """The slot itself."""
        return self.status.slot

    @property
    def score(self) -> float | None:
        """The headline score: the mean of its last 100 episodes."""
        return None if self.finding is None else self.finding.summary.final_return

    @property
    def kind(self) -> str:
        """What its seeds have in common beside the game, in a word or two."""
        version = f"v{self.since}" if self.since > 1 else ""
        return " ".join(filter(None, (self.slot.algorithm, self.slot.variant, version)))


def read_results(
    folder: Path, listing: Listing, *, progress: Callable[[float], None] = lambda share: None
) -> list[Result]:
    """Return all slots of all versions; those that are on the newest list come first."""
    book, listed = Book(folder), {slot.name: slot for slot in listing.slots}
    slots = list({**listed, **listing.all_slots}.values())
    since: dict[str, int] = {}
    for number, version in enumerate(listing.versions, start=1):
        for slot in version.slots:
            since.setdefault(slot.name, number)
    found = []
    for place, slot in enumerate(slots):
        progress(place / len(slots))
        status = book.status(slot)
        result = Result(status, since[slot.name], slot.name in listed)
        found.append(replace(result, finding=_finding(folder, status)))
    return _with_reasons(found)


def counted(results: Iterable[Result]) -> list[Result]:
    """Return the slots whose scores count."""
    return [result for result in results if not result.left_out]


def _finding(folder: Path, status: SlotStatus) -> Finding | None:
    path = _run_of(folder, status)
    if path is None:
        return None
    files = replace(load_run(path), label=status.slot.name)
    episodes = files.episodes_of("actor")
    told = zip(steps_of(episodes), (float(row["return"]) for row in episodes), strict=True)
    points = np.asarray([(steps, value) for steps, value in told if steps is not None], dtype=np.float64)
    points = points.reshape(-1, 2)
    return Finding(
        files=replace(files, metrics=[], episodes=[], events=[], hardware=[], processes=Processes()),
        summary=summarise(files),
        curves={axis: _thinned(learning_curve(files, axis)) for axis in AXES},
        steps=points[:, 0],
        returns=points[:, 1],
        busy=busy_spans(files.clock),
    )


def _run_of(folder: Path, status: SlotStatus) -> Path | None:
    """Return the run of a slot; anybody may have written its lease, so only one inside the slot's own folder."""
    home = (folder / RUNS / status.slot.name).resolve()
    run = status.run
    if run is not None and run.is_dir() and not run.is_symlink() and run.resolve().is_relative_to(home):
        return run
    return next(reversed(run_folders(folder, status.slot.name)), None)


def _thinned(curve: Series) -> Series:
    """Return some of the points of a curve, the last one included."""
    count = len(curve.x)
    if count <= MAX_CURVE_POINTS:
        return curve
    places = [round(place) for place in np.linspace(0, count - 1, MAX_CURVE_POINTS)]
    return Series([curve.x[place] for place in places], [curve.y[place] for place in places])


def busy_spans(clock: RunClock) -> tuple[Span, ...]:
    """Return when a run trained: its pauses lie between its invocations."""
    ends = [clock.begin_unix_s, *(end for pause in clock.pauses for end in pause), clock.end_unix_s]
    spans = zip(ends[::2], ends[1::2], strict=True)
    return tuple((begin_s, end_s) for begin_s, end_s in spans if end_s > begin_s)


def _with_reasons(results: Sequence[Result]) -> list[Result]:
    """Say of each slot why its score does not count, if it does not; equal seeds count once, as in every report.

    Slots that left the list are only compared with those that took their place, and never counted with them.
    """
    left_out: dict[str, str] = {}
    for is_listed in (True, False):
        findings = [result.finding for result in results if result.is_listed is is_listed and result.finding]
        _, without = choose_runs([(found.files, found.summary) for found in findings])
        left_out |= {run.label: run.why for run in without}
    return [replace(result, left_out=left_out.get(result.slot.name) or _why_not(result)) for result in results]


def _why_not(result: Result) -> str:
    if result.finding is None:
        return NO_RUN
    if result.score is None:
        is_unread = result.finding.files.run is None and result.finding.summary.steps is None
        return NOT_READ if is_unread else NO_EPISODE
    return ""
