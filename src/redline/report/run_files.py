"""The files of a run as they are on the disk, whatever became of them: rows that can be used, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.records import Row


@dataclass(frozen=True)
class RunFiles:
    """One run, or one recording of foreign code; rows are in the order of time, and their times are numbers."""

    path: Path
    label: str  # short, and different for each run of a report
    run: Mapping[str, Any] | None  # run.json; None where there is none
    metrics: list[Row]
    episodes: list[Row]
    events: list[Row]
    hardware: list[Row]
    problems: tuple[str, ...]  # what is missing or unreadable, each in one sentence


def load_runs(paths: Sequence[Path]) -> list[RunFiles]:
    """Read the run directories among `paths`, and those inside a folder that is none itself."""
    raise NotImplementedError
