"""What a worker leaves for the process that started it: its row, and what it said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from redline.bench.training.window import SteadyWindow

ROW, SAID = "row.json", "said.log"


def write_row(folder: Path, window: SteadyWindow) -> None:
    """Leave what the window saw, and with how many threads the contender computed."""
    row = window.row() | {"threads": torch.get_num_threads()}
    (folder / ROW).write_text(json.dumps(row), encoding="utf-8")


def read_row(folder: Path) -> dict[str, Any]:
    """Return what the window saw."""
    row: dict[str, Any] = json.loads((folder / ROW).read_text(encoding="utf-8"))
    return row


def last_line(folder: Path) -> str:
    """Return the end of what a worker said."""
    lines = (folder / SAID).read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
