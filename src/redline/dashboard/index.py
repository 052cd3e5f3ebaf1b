"""All runs below some folders, each with its state, its newest reading and a curve of a few points.

Files are looked at again only where they may have changed, so that hundreds of runs cost little.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redline.dashboard.fleets import MAX_FLEETS, Fleet, find_fleets
from redline.errors import UserError
from redline.files import open_regular
from redline.fleet.slots import RUNS
from redline.jsonl import MAX_LINE_BYTES, Row, measured, plain_text, tamed
from redline.report.rows import members, moment, setting, text
from redline.runs.locating import TURNS, FollowedRun, find_recorded
from redline.runs.run_json import read_run_json

MAX_RUNS = 5_000
SEARCH_S = 10.0  # between two searches for new runs, at least
MOST_SEARCHING = 0.003  # of a core
LOOK_S = 5.0  # between two looks at a run that does not go on
REFRESH_S = 0.5  # between two looks at runs that go on
TAIL_BYTES = 24_000  # of metrics and hardware: some rows
EVENTS_BYTES = 65_536
SPARK_POINTS = 32
SPARK_WHOLE_BYTES = 65_536  # a smaller file is read as a whole
SPARK_GROWTH = 1.03  # of metrics.jsonl, after which the curve is drawn anew
MEAN_RETURN = re.compile(rb'"mean_return_100": ?(-?[0-9]{1,18}(?:\.[0-9]{1,25})?(?:[eE][-+]?[0-9]{1,3})?)[,}]')
LOOKED_AT = ("run.json", "run.lock", "metrics.jsonl", "events.jsonl", "hardware.jsonl")
READINGS = (
    *("steps", "steps_per_s", "updates_per_s", "mean_return_100", "best_return", "greedy_return", "episodes", "time_s"),
    *("progress", "remaining_s", "remaining_low_s", "remaining_high_s", "cost", "cost_remaining", "elapsed_s"),
)

Stamp = tuple[tuple[int, int, int] | None, ...]  # of each file: inode, bytes, time of the last change
Facts = dict[str, Any]


@dataclass
class Shown:
    """One run of the index."""

    id: str
    path: Path
    root: Path  # the folder below which it was found
    fleet: str | None  # id of its fleet
    followed: FollowedRun
    facts: Facts = field(default_factory=dict)  # as the page gets them
    run_json: Mapping[str, Any] = field(default_factory=dict)
    version: int = 0  # of the index, when the facts changed last
    stamp: Stamp = ()
    looked_s: float = -math.inf
    spark: list[float | None] = field(default_factory=list)
    spark_bytes: int = 0

    @property
    def is_running(self) -> bool:
        """Whether it goes on."""
        return self.followed.status.state == "running"


class Index:
    """The runs below some folders."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = [folder.resolve() for folder in folders]
        self.runs: dict[str, Shown] = {}
        self.version = 0
        self.gone: list[tuple[int, str]] = []  # version → id of a run that is no longer there
        self.fleets: dict[str, Fleet] = {}
        self.fleet_facts: list[Facts] = []
        self._search_interval_s = SEARCH_S
        self._searched_s = self._refreshed_s = -float("inf")

    def refresh(self) -> None:
        """Look for new runs, and at those that may have changed; asked often, it looks rarely."""
        now_s = time.monotonic()
        if now_s - self._refreshed_s < REFRESH_S:
            return
        if now_s - self._searched_s > self._search_interval_s:
            begun_s = time.process_time()
            self._search()
            self._search_interval_s = max(SEARCH_S, (time.process_time() - begun_s) / MOST_SEARCHING)
            self._searched_s = time.monotonic()
        for shown in self.runs.values():
            if shown.is_running or now_s - shown.looked_s > LOOK_S:
                shown.looked_s = now_s
                self._look(shown)
        self._look_at_fleets()
        self._refreshed_s = time.monotonic()

    def get(self, identity: str) -> Shown | None:
        """Return a run by its id; it is looked at before."""
        shown = self.runs.get(identity)
        if shown is None and not self.runs:
            self.refresh()
            shown = self.runs.get(identity)
        if shown is not None and time.monotonic() - shown.looked_s > REFRESH_S:
            shown.looked_s = time.monotonic()
            self._look(shown)
        return shown

    def ids(self) -> dict[Path, str]:
        """Return the id of each run."""
        return {shown.path: identity for identity, shown in self.runs.items()}

    def changed_since(self, version: int) -> tuple[list[Facts], list[str]]:
        """Return the facts of runs that changed since, and the ids of those that are gone."""
        changed = [shown.facts for shown in self.runs.values() if shown.version > version]
        return changed, [identity for at, identity in self.gone if at > version]

    def _search(self) -> None:
        self._find_fleets()
        found = dict(self._found())
        for identity in [known for known in self.runs if known not in found]:
            del self.runs[identity]
            self.version += 1
            self.gone = [*self.gone[-MAX_RUNS:], (self.version, identity)]
        for identity, (path, root, fleet) in found.items():
            known = self.runs.get(identity)
            if known is None or (known.root, known.fleet) != (root, fleet):
                followed = FollowedRun(path, last_bytes=TAIL_BYTES, last_events_bytes=EVENTS_BYTES, follow_links=False)
                self.runs[identity] = Shown(identity, path, root, fleet, followed)

    def _look_at_fleets(self) -> None:
        facts = []
        for identity, fleet in self.fleets.items():
            fleet.look()
            facts.append({"id": identity, "name": fleet.name, "counts": fleet.counts})
        if facts != self.fleet_facts:
            self.version += 1
            self.fleet_facts = facts

    def _found(self) -> Iterator[tuple[str, tuple[Path, Path, str | None]]]:
        """Yield each run with its id, the folder that its name is relative to, and its fleet."""
        roots: list[tuple[Path, Path, str | None]] = [(root, root, None) for root in self.folders]
        roots += [(fleet.folder / RUNS, fleet.folder.parent, identity) for identity, fleet in self.fleets.items()]
        count = 0
        for root, names_from, fleet in roots:
            for path in find_recorded(root) if root.is_dir() and not root.is_symlink() else ():
                with suppress(OSError, RuntimeError):
                    real = path.resolve()
                    if not real.is_relative_to(root) or count >= MAX_RUNS:  # a link may lead anywhere
                        continue
                    count += 1
                    yield identity_of(real), (real, names_from, fleet)

    def _find_fleets(self) -> None:
        folders = [path for root in self.folders if root.is_dir() for path in find_fleets(root)][:MAX_FLEETS]
        found = {identity_of(path): path for path in folders}
        self.fleets = {identity: self.fleets.get(identity) or Fleet(path) for identity, path in found.items()}

    def _look(self, shown: Shown) -> None:
        stamp = _stamp(shown.path)
        if stamp == shown.stamp and shown.facts and not shown.is_running:
            return
        if stamp[:1] != shown.stamp[:1]:
            shown.run_json = _read_facts(shown.path)
        shown.stamp = stamp
        _follow(shown)
        metrics_bytes = 0 if stamp[2] is None else stamp[2][1]
        if not shown.spark_bytes <= metrics_bytes <= SPARK_GROWTH * shown.spark_bytes:
            shown.spark, shown.spark_bytes = spark_of(shown.path / "metrics.jsonl"), metrics_bytes
        if (facts := _facts(shown)) != shown.facts:
            self.version += 1
            shown.facts, shown.version = facts, self.version


def identity_of(path: Path) -> str:
    """Return the id of a folder: the same after a restart, and no path."""
    return hashlib.blake2b(os.fsencode(path), digest_size=8).hexdigest()


def spark_of(path: Path) -> list[float | None]:
    """Return the mean return at about evenly spaced places of a metrics.jsonl of any size."""
    with suppress(OSError), open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size <= SPARK_WHOLE_BYTES:
            lines = file.read(SPARK_WHOLE_BYTES).splitlines()
            step = max(1, len(lines) / SPARK_POINTS)
            return [_mean_return(lines[int(place * step)]) for place in range(min(len(lines), SPARK_POINTS))]
        found: list[float | None] = []
        for place in range(SPARK_POINTS):
            file.seek(size * place // SPARK_POINTS)
            file.readline(MAX_LINE_BYTES)  # the rest of a row
            found.append(_mean_return(file.readline(MAX_LINE_BYTES)))
        return found
    return []


def _mean_return(line: bytes) -> float | None:
    """Return the mean return of a row; to read the whole row would take ten times as long."""
    told = MEAN_RETURN.search(line)
    return None if told is None else measured(float(told[1]))


def _follow(shown: Shown) -> None:
    events = shown.followed.refresh()
    is_told = any(row.get("event") in TURNS for row in events)
    # a long traceback may stand behind the event that ended the run, and a row may be long
    is_silent = shown.followed.status.state == "killed" and bool(events) and not is_told
    is_short = shown.followed.metrics is None and (shown.stamp[2] or (0, 0, 0))[1] > TAIL_BYTES
    if not shown.facts and (is_silent or is_short):
        shown.followed = FollowedRun(shown.path, follow_links=False)
        shown.followed.refresh()


def _stamp(path: Path) -> Stamp:
    stamps: list[tuple[int, int, int] | None] = []
    for name in LOOKED_AT:
        try:
            facts = os.stat(path / name, follow_symlinks=False)  # noqa: PTH116 - half the time of Path.stat
            stamps.append((facts.st_ino, facts.st_size, facts.st_mtime_ns))
        except OSError:
            stamps.append(None)
    return tuple(stamps)


def _read_facts(path: Path) -> Mapping[str, Any]:
    """Return what is needed of run.json, nothing where it can't be read."""
    with suppress(UserError, OSError):
        run: Row = tamed(read_run_json(path))
        return run
    return {}


def _facts(shown: Shown) -> Facts:
    """Return what the overview shows of a run; texts are short and on one line."""
    run, followed = shown.run_json, shown.followed
    row = followed.metrics or {}
    status = followed.status
    resumed = [unix_s for resume in members(run, "resumes") if (unix_s := moment(resume)) is not None]
    game = setting(run, "env.id")
    return {
        "id": shown.id,
        "name": plain_text(shown.path.relative_to(shown.root)) if shown.path != shown.root else shown.path.name,
        "kind": "run" if followed.is_run else "recording",
        "fleet": shown.fleet,
        "game": plain_text(game) if isinstance(game, str) else None,
        "algorithm": plain_text(text(run, "algorithm") or "") or None,
        "seed": measured(setting(run, "seed")),
        "state": status.state,
        "how": plain_text(status.how),
        "begun_unix_s": max([*resumed, moment(run, "created_unix_s") or 0.0]) or _made_unix_s(shown.path),
        "heard_unix_s": measured(status.unix_s),
        "spark": [
            None if value is None else float(f"{value:.4g}")
            for value in (*shown.spark, measured(row.get("mean_return_100")))
        ],
        **{name: measured(row.get(name)) for name in READINGS},
    }


def _made_unix_s(path: Path) -> float | None:
    with suppress(OSError):
        return path.stat().st_mtime
    return None
