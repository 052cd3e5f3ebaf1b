"""`slots.jsonl` for a supervisor: a full disk costs rows until there is room again, and never the supervision."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path

from redline.files import reason_of
from redline.jsonl import RecordWriter

MOST_KEPT = 10_000  # rows that wait for room


class SlotLog(RecordWriter):
    """Appends rows; those that can't be written are kept, and follow as soon as they can."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._kept: deque[Mapping[str, object]] = deque(maxlen=MOST_KEPT)
        self.trouble: str | None = None  # why rows wait

    def write(self, row: Mapping[str, object]) -> None:
        """Append a row, behind those that wait."""
        self._kept.append(row)
        self.flush()

    def flush(self) -> None:
        """Write what waits, as far as there is room."""
        try:
            while self._kept:
                super().write(self._kept[0])
                self._kept.popleft()
        except OSError as error:
            self.trouble = reason_of(error)
        else:
            self.trouble = None
