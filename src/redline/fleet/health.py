"""Watches a fleet: samples and incidents go to `health.jsonl`, each incident once and at once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.fleet.slots import SlotStatus

HEALTH_JSONL = "health.jsonl"


@dataclass(frozen=True)
class Incident:
    """Something that is wrong."""

    kind: str
    message: str
    slot: str = ""  # empty: it concerns the fleet or the machine
    remedy: str = ""


class Health:
    """Looks at runs and machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sample(self, statuses: Sequence[SlotStatus], *, expected: int) -> list[Incident]:
        """Look at all runs; return what is newly wrong."""
        return []


def read_health(folder: Path) -> dict[str, Any]:
    """Return what `redline fleet status --json` tells as its health."""
    return {"unix_s": time.time(), "incidents": []}
