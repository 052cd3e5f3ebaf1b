"""A run as a page shows it: its files, its numbers, and what it is called there."""

from __future__ import annotations

from dataclasses import dataclass

from redline.report.run_files import RunFiles
from redline.report.run_summary import RunSummary


@dataclass(frozen=True)
class ShownRun:
    """A run and what it is called in the page."""

    files: RunFiles
    summary: RunSummary
    key: str  # begins the ids of its sections


def title_of(run: ShownRun) -> str:
    """Say in a few words what the run is."""
    summary = run.summary
    if summary.algorithm and summary.env:
        return f"{summary.algorithm} on {summary.env}"
    return summary.algorithm or summary.env or run.files.label
