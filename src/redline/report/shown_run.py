"""A run as a page shows it: its files, its numbers, and what it is called there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from redline.report.coverage import LEARNING, RECORDING
from redline.report.run_files import RunFiles
from redline.report.run_summary import LAST_10_S, RunSummary

# spans that numbers of a summary are over, in words
SPANS = {LEARNING: "while learning", RECORDING: "over the whole recording", LAST_10_S: "over the last 10 s"}


@dataclass(frozen=True)
class ShownRun:
    """A run and what it is called in the page."""

    files: RunFiles
    summary: RunSummary
    key: str  # begins the ids of its sections
    page_folder: Path | None = None  # where the page will lie; None: here


def title_of(run: ShownRun) -> str:
    """Say in a few words what the run is."""
    summary = run.summary
    if summary.algorithm and summary.env:
        return f"{summary.algorithm} on {summary.env}"
    return summary.algorithm or summary.env or run.files.label


def span_words(spans: Iterable[str | None]) -> str:
    """Say over what span numbers are; nothing where that is unknown."""
    known = {SPANS.get(name, name) for name in spans if name}
    return "over different spans" if len(known) > 1 else "".join(known)
