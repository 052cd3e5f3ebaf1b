"""The part of a page that names the processes which used most."""

from __future__ import annotations

from redline.report.amounts import DASH, amount, size
from redline.report.html_parts import Html, section, table
from redline.report.process_use import largest_processes
from redline.report.shown_run import ShownRun

STRANGER = "not watched"
HEAD = ("pid", "role", "name", "cores used, mean", "resident memory, peak", "GPU memory, peak")


def process_section(run: ShownRun, *, level: int) -> Html | None:
    """Return a table of the largest processes; None where no sample tells of any."""
    found = largest_processes(run.files.path / "hardware.jsonl")
    if not found.largest:
        return None
    rows = [
        (
            str(use.pid),
            use.role or STRANGER,
            use.name or DASH,
            amount(use.cores),
            size(use.rss_peak_bytes),
            size(use.gpu_peak_bytes),
        )
        for use in found.largest
    ]
    shown = [place for place in range(len(HEAD)) if any(row[place] != DASH for row in rows)]
    head, cells = [HEAD[place] for place in shown], [[row[place] for place in shown] for row in rows]
    numeric = [place for place, column in enumerate(shown) if column not in (1, 2)]
    lead = "Means are over the time that a process was there."
    if len(rows) < found.count:
        lead = f"{len(rows)} of {found.count:,}: those with most CPU, memory or GPU memory. {lead}"
    if not found.is_whole:
        lead += f" The recording is long: only its last {found.samples:,} samples were read for this."
    return section(
        "Largest processes",
        table("Largest processes", head, cells, numeric=numeric, css="card"),
        lead=lead,
        level=level,
    )
