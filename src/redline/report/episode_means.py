"""Every episode with the means of the hardware while it was played."""

from __future__ import annotations

from collections.abc import Iterator

from redline.records import Row
from redline.report.run_files import RunFiles


def joined_rows(run: RunFiles) -> Iterator[Row]:
    """Yield each row of episodes.jsonl with `begun_unix_s` and `hardware`: {flat name: mean}, {} where none was read."""
    raise NotImplementedError
