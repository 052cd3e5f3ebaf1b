"""The rows of finished cases, which a campaign goes on from, and the table that it ends with."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
ANY_PATH = re.compile(r"(?<![\w.])[~/][\w./-]*/[\w./-]*")


def read_done(path: Path | None, *, seed: int, commit: str | None) -> list[Row]:
    """Return the rows of this seed and this version of Redline; a torn last line is left out."""
    if path is None or not path.exists():
        return []
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if row["seed"] == seed and row["commit"] == commit:
            rows.append(row)
    return rows


def append_row(path: Path | None, row: Row) -> None:
    """Keep a row."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def in_turn(goals: dict[str, int]) -> list[tuple[str, int]]:
    """Return all cases so that at any time each kind is about as near to its goal as the others."""
    cases = [((index + 0.5) / goal, kind, index) for kind, goal in goals.items() for index in range(goal)]
    return [(kind, index) for _, kind, index in sorted(cases)]


def group(rows: Iterable[Row]) -> list[Row]:
    """Return one row for each distinct fault: how often it came, and its smallest case."""
    found: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        for fault in row["faults"]:
            key = (row["kind"], fault["oracle"], fault["detail"])
            known = found.setdefault(
                key, {**dict(zip(("kind", "oracle", "detail"), key, strict=True)), "count": 0, "size": None}
            )
            known["count"] += 1
            if known["size"] is None or row["size"] < known["size"]:
                known.update(size=row["size"], index=row["index"], case=row["case"])
    return sorted(found.values(), key=lambda fault: (fault["kind"], fault["oracle"], -fault["count"]))


def summarise(rows: Sequence[Row]) -> dict[str, Row]:
    """Return cases, skipped ones, seconds and faults by oracle of each kind."""
    kinds: dict[str, Row] = {}
    for row in rows:
        kind = kinds.setdefault(
            row["kind"],
            {"cases": 0, "skipped": 0, "failed": 0, "seconds": 0.0, "processor_s": 0.0, "oracles": Counter()},
        )
        kind["skipped" if row.get("skipped") else "cases"] += 1
        kind["seconds"] += row["seconds"]
        kind["processor_s"] += row.get("processor_s", 0.0)
        kind["failed"] += bool(row["faults"])
        kind["oracles"].update({fault["oracle"] for fault in row["faults"]})
    return kinds


def as_table(kinds: dict[str, Row]) -> str:
    """Return the summary for people."""
    lines = [f"{'kind':<10} {'cases':>6} {'processor s':>11} {'skipped':>8} {'failed':>7}  by oracle"]
    for name, kind in kinds.items():
        processor_s = kind["processor_s"] / max(kind["cases"], 1)
        oracles = ", ".join(f"{oracle} {count}" for oracle, count in kind["oracles"].most_common()) or "–"
        lines.append(
            f"{name:<10} {kind['cases']:>6} {processor_s:>11.2f} {kind['skipped']:>8} {kind['failed']:>7}  {oracles}"
        )
    return "\n".join(lines)


def without_paths(text: str) -> str:
    """Return a text that a record may hold."""
    return ANY_PATH.sub("…", text)
