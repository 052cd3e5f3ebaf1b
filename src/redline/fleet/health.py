"""Watches a fleet: samples and incidents go to `health.jsonl`, each incident once and at once.

An incident that lasts, such as a full disk, is told again only after it was over. What an earlier supervisor has told
is not told again.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from redline.fleet.incidents import (
    NO_LEARNING,
    Incident,
    Key,
    attempt_over,
    killed_for_memory,
    machine_conditions,
    rebooted,
)
from redline.fleet.machine_state import MachineState, read_machine
from redline.fleet.place import Place, here
from redline.fleet.process_table import ProcessTable, read_processes
from redline.fleet.run_watch import RunWatch
from redline.fleet.slots import SLOTS_JSONL, SlotStatus
from redline.jsonl import MAX_TAIL_BYTES, RecordTail, RecordWriter, Row, measured, plain_text
from redline.monitor.processes import read_stat

HEALTH_JSONL = "health.jsonl"
ROW, SAMPLE, INCIDENT, OVER = "row", "sample", "incident", "over"
SAMPLE_S = 60.0  # between two samples in the file; the first is written at once
CALM_LOOKS = 3  # in a row without it: an incident is over
OOM_S = 30.0  # a kill and the kernel's count of it may be seen one after the other
MOST_INCIDENTS = 1_000


class Health:
    """Looks at the runs of a fleet and at the machine, about every ten seconds."""

    def __init__(
        self,
        folder: Path,
        *,
        place: Place | None = None,
        look_at_machine: Callable[[Path], MachineState] = read_machine,
        look_at_processes: Callable[[], ProcessTable] = read_processes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder = folder
        self._place = here() if place is None else place
        self._look_at_machine, self._look_at_processes, self._clock = look_at_machine, look_at_processes, clock
        self._watches: dict[str, RunWatch] = {}
        self._ended: dict[str, RunWatch] = {}  # whose processes should be gone
        self._clean: set[tuple[str, int]] = set()  # attempts of which nothing is left
        self._slot_rows = RecordTail(folder / SLOTS_JSONL)
        self._open: dict[Key, int] = {}  # looks since it was seen last
        self._told: set[Key] = set()
        self._oom_kills: int | None = None
        self._oom_s = -float("inf")
        self._sampled_s = -float("inf")
        self._boot_id = self._read()

    def sample(self, statuses: Sequence[SlotStatus], *, expected: int) -> list[Incident]:
        """Look at all runs; return what is newly wrong. `expected` is the number of runs that should go on now."""
        now_s, machine = self._clock(), self._look_at_machine(self._folder)
        table = self._look_at_processes()
        self._follow(statuses)
        events = [*self._kills(machine, now_s), *self._reboots(machine, statuses), *self._attempts(statuses, now_s)]
        conditions = list(machine_conditions(machine))
        for status in statuses:
            watch = self._watches.get(status.slot.name)
            if watch is not None:
                own = table if self._is_here(watch) else None
                available_bytes = machine.memory_available_bytes
                found = watch.conditions(status, own, time_s=now_s, available_bytes=available_bytes)
                conditions += [Incident.of_run(status, finding) for finding in found]
                events += [Incident.of_event(status, finding) for finding in watch.events()]
        conditions += self._orphans(table)
        told = [*self._new_events(events), *self._new_conditions(conditions)]
        rows = [{ROW: INCIDENT, **asdict(incident)} for incident in told]
        if now_s - self._sampled_s >= SAMPLE_S:
            self._sampled_s = now_s
            rows.append(self._sample_row(machine, expected))
        self._write(rows)
        return told

    # What is seen

    def _follow(self, statuses: Sequence[SlotStatus]) -> None:
        """Begin to watch new attempts, and look after those that are over."""
        for status in statuses:
            name, holder = status.slot.name, status.holder
            watch = self._watches.get(name)
            is_running = status.state == "running" and holder is not None
            if watch is not None and (not is_running or watch.holder.epoch != getattr(holder, "epoch", None)):
                self._ended[name] = self._watches.pop(name)
                watch = None
            if is_running and watch is None and holder is not None:
                self._watches[name] = RunWatch(holder, status.run)
            elif not is_running and holder is not None and (name, holder.epoch) not in self._clean:
                self._ended.setdefault(name, RunWatch(holder, status.run))  # an earlier supervisor saw it run

    def _is_here(self, watch: RunWatch) -> bool:
        return watch.holder.place == self._place

    def _attempts(self, statuses: Sequence[SlotStatus], now_s: float) -> Iterator[Incident]:
        """Yield how attempts ended, by what the supervisor wrote down; it may be more than one since the last look."""
        by_name = {status.slot.name: status for status in statuses}
        is_oom = now_s - self._oom_s <= OOM_S
        for row in self._slot_rows.new_rows():
            status = by_name.get(str(row.get("slot")))
            if status is not None and (incident := attempt_over(row, status, is_oom=is_oom)) is not None:
                yield incident

    def _reboots(self, machine: MachineState, statuses: Sequence[SlotStatus]) -> Iterator[Incident]:
        before, self._boot_id = self._boot_id, machine.boot_id
        places = [status.holder.place for status in statuses if status.holder is not None]
        told = {place.boot_id for place in places if place.host == self._place.host}
        if incident := rebooted(machine.boot_id, {before} if before else told):
            yield incident

    def _kills(self, machine: MachineState, now_s: float) -> Iterator[Incident]:
        before, self._oom_kills = self._oom_kills, machine.oom_kills
        if incident := killed_for_memory(before, machine.oom_kills):
            self._oom_s = now_s
            yield incident

    def _orphans(self, table: ProcessTable) -> Iterator[Incident]:
        """Yield the processes of runs that are over; the kernel and the run have had the time since the last look."""
        for name, watch in list(self._ended.items()):
            orphans = watch.orphans(table) if self._is_here(watch) else []
            if not orphans:
                del self._ended[name]
                self._clean.add((name, watch.holder.epoch))
            elif watch.was_over:
                yield Incident.of_orphans(name, watch.holder, orphans)
            watch.was_over = True

    # What is told

    def _new_events(self, events: Sequence[Incident]) -> Iterator[Incident]:
        for incident in events:
            if incident.key not in self._told:
                self._told.add(incident.key)
                yield incident

    def _new_conditions(self, conditions: Sequence[Incident]) -> Iterator[Incident]:
        present = {incident.key for incident in conditions}
        for incident in conditions:
            is_new = incident.key not in self._open
            self._open[incident.key] = 0
            if is_new:
                yield incident
        for key in [key for key in self._open if key not in present]:
            self._open[key] += 1
            if self._open[key] >= CALM_LOOKS and key[0] != NO_LEARNING:  # that is said once
                del self._open[key]
                self._write([{ROW: OVER, "kind": key[0], "slot": key[1], "attempt": key[2]}])

    # What is written

    def _sample_row(self, machine: MachineState, expected: int) -> Row:
        watches = self._watches
        own = read_stat(os.getpid())
        return {
            ROW: SAMPLE,
            "boot_id": machine.boot_id,
            "expected": expected,
            "alive": len(watches),
            "workers_expected": sum(watch.workers for watch in watches.values()),
            "workers_alive": sum(watch.workers_alive for watch in watches.values()),
            "memory_available_bytes": machine.memory_available_bytes,
            "disk_free_bytes": machine.disk and machine.disk.free_bytes,
            "shm_free_bytes": machine.shared and machine.shared.free_bytes,
            "temperature_c": machine.heat and machine.heat.celsius,
            "oom_kills": machine.oom_kills,
            "supervisor_cpu_s": time.process_time(),
            "supervisor_rss_bytes": own and own.rss_bytes,
            "runs": {
                name: {
                    "steps": watch.steps,
                    "rss_bytes": watch.rss_bytes,
                    "slope_bytes_per_h": watch.leak.slope_bytes_per_h,
                }
                for name, watch in watches.items()
            },
        }

    def _write(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Write rows; where the disk is full, the fleet goes on without them."""
        if not rows:
            return
        with suppress(OSError, ValueError), RecordWriter(self._folder / HEALTH_JSONL) as writer:
            for row in rows:
                writer.write({"unix_s": time.time(), "host": self._place.host, **row})

    def _read(self) -> str:
        """Take over what earlier supervisors have told; return the last start of this machine that they saw."""
        boot_id = ""
        for row in RecordTail(self._folder / HEALTH_JSONL, last_bytes=MAX_TAIL_BYTES).new_rows():
            if row.get(ROW) == SAMPLE and row.get("host") == self._place.host:
                boot_id = str(row.get("boot_id") or "")
            about = str(row.get("about") or row.get("kind"))
            key = about, str(row.get("slot")), int(measured(row.get("attempt")) or 0)
            if row.get(ROW) == INCIDENT and row.get("lasts") is True:
                self._open[key] = 0
            elif row.get(ROW) == INCIDENT:
                self._told.add(key)
            elif row.get(ROW) == OVER:
                self._open.pop(key, None)
        return boot_id


def read_health(folder: Path) -> dict[str, Any]:
    """Return what `redline fleet status --json` tells as its health."""
    rows = RecordTail(folder / HEALTH_JSONL, last_bytes=MAX_TAIL_BYTES).new_rows()
    samples = [row for row in rows if row.get(ROW) == SAMPLE]
    newest = samples[-1] if samples else {}
    told = {
        name: newest.get(name)
        for name in (
            *("unix_s", "expected", "alive", "workers_expected", "workers_alive", "memory_available_bytes"),
            *("disk_free_bytes", "shm_free_bytes", "temperature_c", "supervisor_cpu_s", "supervisor_rss_bytes"),
        )
    }
    incidents = [read_incident(row) for row in rows if row.get(ROW) == INCIDENT]
    counts = Counter(str(incident["kind"]) for incident in incidents)
    return {
        **{name: measured(value) for name, value in told.items()},
        "counts": dict(counts),
        "incidents": incidents[-MOST_INCIDENTS:],
    }


def read_incident(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an incident of the file as it may be shown."""
    texts = {name: plain_text(row.get(name) or "") for name in ("kind", "slot", "message", "remedy", "host")}
    return {"unix_s": measured(row.get("unix_s")), **texts, "attempt": int(measured(row.get("attempt")) or 0)}
