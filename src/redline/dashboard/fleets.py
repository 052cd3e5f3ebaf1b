"""Fleets as their page shows them: the slots of each game, incidents and the bill, read by redline.fleet."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from redline.errors import ForeignFileError, UserError
from redline.files import check_own
from redline.fleet.health import HEALTH_JSONL
from redline.fleet.incidents import NO_LEARNING
from redline.fleet.lease import LEASES, Watcher, read_holder
from redline.fleet.listing import FLEET_JSON, Listing, read_listing
from redline.fleet.logbook import Logbook, read_logbook
from redline.fleet.slots import RUNS, SLOTS_JSONL, STATES, SUPERVISOR, Book, SlotStatus
from redline.fleet.spans import union_of
from redline.fleet.time_left import time_left
from redline.jsonl import Row, plain_text
from redline.report.rows import moment, text
from redline.units import money

LOOK_S = 1.0  # between two looks at a fleet, at least
MOST_LOOKING = 0.005  # of a core
MAX_LOG_BYTES = 64_000_000  # of a log that is read as a whole
MAX_INCIDENTS = 200  # on the page, the newest
MAX_FLEETS = 200
MAX_DEPTH = 2  # of fleets below a folder

Json = dict[str, Any]


def find_fleets(root: Path, depth: int = 0) -> Iterator[Path]:
    """Yield the fleets in a folder; links are not followed."""
    if (root / FLEET_JSON).is_file() and not (root / FLEET_JSON).is_symlink():
        yield root
        return
    if depth >= MAX_DEPTH:
        return
    try:
        inside = sorted(path for path in root.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return
    for path in inside:
        yield from find_fleets(path, depth + 1)


class Fleet:
    """A fleet that is followed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._book = Book(folder)
        self._watcher = Watcher(folder)
        self._listing: Listing | None = None
        self._statuses: list[SlotStatus] = []
        self._logbook: Logbook | None = None
        self._problem = ""
        self._looked_s = -float("inf")
        self._interval_s = LOOK_S
        self._stamps: dict[str, object] = {}

    def look(self) -> None:
        """Read what is new; asked often, it looks rarely."""
        if time.monotonic() - self._looked_s < self._interval_s:
            return
        begun_s = time.process_time()
        try:
            self._check_files()
            if self._has_changed(FLEET_JSON) or self._listing is None:
                self._listing = read_listing(self.folder)
            self._statuses = self._book.statuses(self._listing)
            self._problem = ""
        except (UserError, OSError) as error:
            self._problem = plain_text(error, 300)
        self._interval_s = max(LOOK_S, (time.process_time() - begun_s) / MOST_LOOKING)
        self._looked_s = time.monotonic()

    @property
    def name(self) -> str:
        """Its name, or that of its folder."""
        return plain_text(self._listing.name if self._listing is not None else self.folder.name)

    @property
    def counts(self) -> dict[str, int]:
        """How many slots are in each state."""
        found = Counter(status.state for status in self._statuses)
        return {state: found[state] for state in STATES}

    def to_json(self, ids: Mapping[Path, str], sparks: Mapping[str, Sequence[float | None]]) -> Json:
        """Return what the page shows; `ids` of runs by their folders, `sparks` by their ids."""
        logbook = self._read_log()
        incidents = self._incidents(logbook)
        ill = Counter(one["slot"] for one in incidents if one["is_open"])
        return {
            "name": self.name,
            "problem": "; ".join(filter(None, [self._problem, *(logbook.problems if logbook else ())])),
            "counts": self.counts,
            "is_supervised": self._is_supervised(),
            "left_s": self._time_left(),
            "bill": self._bill(logbook),
            "packing": plain_text(logbook.packing[-1], 300) if logbook and logbook.packing else "",
            "slots": [self._slot(status, ids, sparks, ill) for status in self._statuses],
            "incidents": incidents[::-1],
        }

    def _check_files(self) -> None:
        """Refuse links, which may lead out of the fleet."""
        for name in (FLEET_JSON, SLOTS_JSONL, HEALTH_JSONL):
            check_own(self.folder / name)
            if (self.folder / name).exists() and (self.folder / name).stat().st_size > MAX_LOG_BYTES:
                raise UserError(f"{name} is larger than {MAX_LOG_BYTES:_} bytes and was not read")
        for name in (LEASES, RUNS):
            if (self.folder / name).exists() or (self.folder / name).is_symlink():
                check_own(self.folder / name, is_folder=True)

    def _has_changed(self, name: str) -> bool:
        try:
            facts = (self.folder / name).lstat()
            stamp = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        except OSError:
            stamp = None
        is_new, self._stamps[name] = self._stamps.get(name, ()) != stamp, stamp
        return is_new

    def _read_log(self) -> Logbook | None:
        has_changed = [self._has_changed(name) for name in (SLOTS_JSONL, HEALTH_JSONL)]
        if any(has_changed) or self._logbook is None:
            try:
                self._check_files()
                self._logbook = read_logbook(self.folder)
            except (ForeignFileError, UserError, OSError) as error:
                self._logbook, self._problem = None, plain_text(error, 300)
        return self._logbook

    def _is_supervised(self) -> bool:
        holder = read_holder(self.folder, SUPERVISOR)
        return holder is not None and self._watcher.is_alive(holder)

    def _time_left(self) -> float | None:
        wished = self._listing.wishes.concurrency if self._listing is not None else 0
        return time_left(self._statuses, wished or self.counts["running"]) if self._statuses else None

    def _bill(self, logbook: Logbook | None) -> Json:
        """Return the hours in which at least one run trained, and what they cost."""
        running = {status.slot.name for status in self._statuses if status.state == "running"}
        seconds, most = union_of(_spans(logbook.turns if logbook is not None else (), running))
        price = self._listing.wishes.price_per_hour if self._listing is not None else None
        return {
            "hours_s": seconds,
            "most": most,
            "price": None if price is None else f"{money(price)} per hour",
            "cost": None if price is None else money(price * seconds / 3_600.0),
        }

    def _slot(
        self,
        status: SlotStatus,
        ids: Mapping[Path, str],
        sparks: Mapping[str, Sequence[float | None]],
        ill: Mapping[str, int],
    ) -> Json:
        run_id = None if status.run is None else ids.get(status.run)
        return {
            "name": status.slot.name,
            "game": plain_text(status.slot.game),
            "what": plain_text(" · ".join(filter(None, [status.slot.algorithm, status.slot.variant]))),
            "seed": status.slot.seed,
            "state": status.state,
            "reason": plain_text(status.reason),
            "attempt": status.attempt,
            "run": run_id,
            "steps": status.steps,
            "score": status.mean_return_100,
            "left_s": status.remaining_s,
            "spark": sparks.get(run_id, ()) if run_id is not None else (),
            "incidents": ill.get(status.slot.name, 0),
        }

    def _incidents(self, logbook: Logbook | None) -> list[Json]:
        running = {status.slot.name for status in self._statuses if status.state == "running"}
        return [
            {
                "unix_s": moment(row),
                "kind": text(row, "kind") or "",
                "slot": text(row, "slot") or "",
                "message": text(row, "message") or "",
                "remedy": text(row, "remedy") or "",
                "is_open": _is_open(row, running),
            }
            for row in (logbook.incidents[-MAX_INCIDENTS:] if logbook is not None else ())
        ]


def _is_open(row: Row, running: set[str]) -> bool:
    """Tell whether an incident still lasts, as far as anybody has looked."""
    lasts = bool(row.get("lasts")) and row.get("kind") != NO_LEARNING and moment(row, "over_unix_s") is None
    return lasts and (row.get("slot") or "") in {"", *running}


def _spans(turns: Sequence[Row], running: set[str]) -> list[tuple[float, float]]:
    """Return when each slot ran; one that ended without a word ended with the last word of all."""
    begun: dict[str, float] = {}
    spans: list[tuple[float, float]] = []
    last_s = max((at_s for row in turns if (at_s := moment(row)) is not None), default=0.0)
    for row in turns:
        name, at_s = str(row.get("slot")), moment(row)
        if at_s is None:
            continue
        if name in begun:
            begin_s = begun.pop(name)
            spans.append((begin_s, max(begin_s, at_s)))
        if row.get("state") == "running":
            begun[name] = at_s
    ends = {name: time.time() if name in running else last_s for name in begun}
    return spans + [(begin_s, max(begin_s, ends[name])) for name, begin_s in begun.items()]
