"""Where the time of a run went: by phase of the run, and by process."""

from __future__ import annotations

from dataclasses import dataclass

from redline.report.run_files import RunFiles


@dataclass(frozen=True)
class ProcessShares:
    """How one process spent its time, 0 … 1 each; together 1."""

    role: str
    busy: dict[str, float]  # by what it did; {} where the run does not tell
    waiting: dict[str, float]  # by what it waited for
    unaccounted: float  # the rest of the process
    seconds: float  # of training that this is over


@dataclass(frozen=True)
class PhaseSplit:
    """Seconds of wall clock by phase, one after the other; and what ran beside them."""

    phases_s: dict[str, float]  # warm-up, learning, evaluation, checkpoint, start and end; without those unknown
    beside_s: dict[str, float]  # evaluations by a process of their own
    processes: list[ProcessShares]


def phase_split(run: RunFiles) -> PhaseSplit:
    """Return where the time went; empty parts where the run does not tell."""
    raise NotImplementedError
