"""What was measured of each algorithm: for each kind of measurement, the newest record that holds it."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redline.errors import UserError

RECORDS = Path("benchmarks", "records")
MAX_RECORD_BYTES = 64_000_000
# what is measured → how the names of its records begin
KINDS: Mapping[str, str] = {
    "cartpole": "algorithms-cartpole-v1-",
    "catch": "algorithms-catch-",
    "pong_speed": "algorithms-pong-speed-",
    "pong_score": "algorithms-pong-score-",
}


@dataclass(frozen=True)
class Finding:
    """What one record says of one algorithm."""

    record: str  # its file's name
    unix_s: float
    values: Mapping[str, Any]

    def number(self, key: str) -> float | None:
        """Return a number that was measured, None where there is none."""
        return _as_number(self.values.get(key))

    def to_json(self) -> dict[str, Any]:
        """Return the values with the record they come from."""
        return {**self.values, "record": self.record, "unix_s": self.unix_s}


@dataclass
class Findings:
    """All that the records of a folder say."""

    folder: Path | None
    by_kind: dict[str, dict[str, Finding]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    unreadable: list[str] = field(default_factory=list)  # records that were left out, and why

    def of(self, kind: str, algorithm: str) -> Finding | None:
        """Return what was last measured of an algorithm."""
        return self.by_kind[kind].get(algorithm)


def find_records(start: Path) -> Path | None:
    """Return the records of the repository in which `start` lies: an installed package has none."""
    places = (folder / RECORDS for folder in (start.absolute(), *start.absolute().parents))
    return next((place for place in places if place.is_dir()), None)


def read_findings(folder: Path | None) -> Findings:
    """Read the records of a folder; where there is none, nothing was measured."""
    findings = Findings(folder)
    if folder is None:
        return findings
    if not folder.is_dir():
        raise UserError(f"records {folder} is no folder: use the benchmarks/records of a copy of the repository")
    for kind, start in KINDS.items():
        newest = findings.by_kind[kind]
        for path in sorted(folder.glob(f"{start}*.json")):
            try:
                found = _read_record(path)
            except (OSError, ValueError, RecursionError) as error:
                findings.unreadable.append(f"{path.name} is left out: {error}")
                continue
            for name, finding in found.items():
                if name not in newest or finding.unix_s >= newest[name].unix_s:
                    newest[name] = finding
    return findings


def _read_record(path: Path) -> dict[str, Finding]:
    """Return what a record says of each algorithm."""
    if path.stat().st_size > MAX_RECORD_BYTES:
        raise ValueError(f"it is larger than {MAX_RECORD_BYTES:_} bytes")
    record = json.loads(path.read_text(encoding="utf-8"))
    try:
        unix_s, algorithms = _as_number(record["unix_s"]), record["summary"]["algorithms"]
    except (KeyError, TypeError):
        unix_s, algorithms = None, None
    if unix_s is None or not isinstance(algorithms, Mapping):
        raise ValueError("it lacks unix_s or summary.algorithms")
    return {
        name: Finding(path.name, unix_s, values) for name, values in algorithms.items() if isinstance(values, Mapping)
    }


def _as_number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return value if is_number else None  # type: ignore[return-value]
