"""What is told when something is wrong, in a line with a remedy where there is one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from redline.fleet.lease import Holder
from redline.fleet.machine_state import MachineState
from redline.fleet.slots import BAD_INPUT, DONE, LOGS, RESUMABLE, SlotStatus, vain_attempts
from redline.fleet.symptoms import Finding
from redline.jsonl import Row, measured, plain_text
from redline.monitor.processes import ProcessStat
from redline.units import size

LEAST_MEMORY_BYTES = 256_000_000
LEAST_DISK_BYTES = 200_000_000  # no run is started below
LEAST_FILES = 100
LEAST_SHARED_SHARE = 0.05
MARGIN_C = 2.0  # below the limit of a sensor
MOST_NAMED = 5
LESS_MEMORY = "use a lower --concurrency, or --set replay.capacity=…"
NO_LEARNING = "no-learning"
OVER = "an attempt is over"
NUMBERS = re.compile(r"\d[\d.,_]*")

Key = tuple[str, str, int]


@dataclass(frozen=True)
class Incident:
    """Something that is wrong."""

    kind: str
    message: str
    slot: str = ""  # empty: it concerns the machine
    remedy: str = ""
    attempt: int = 0
    lasts: bool = False  # it may be over some time
    about: str = ""  # in place of the kind: what tells it from others

    @property
    def key(self) -> Key:
        """What makes two of them the same."""
        return self.about or self.kind, self.slot, self.attempt

    @property
    def line(self) -> str:
        """What to show of it."""
        return ": ".join(filter(None, (self.slot, self.message, self.remedy)))

    @classmethod
    def of_run(cls, status: SlotStatus, finding: Finding) -> Incident:
        """Return what is wrong with a run as an incident."""
        attempt = 0 if finding.kind == NO_LEARNING else status.attempt
        return cls(finding.kind, finding.message, status.slot.name, finding.remedy, attempt, lasts=True)

    @classmethod
    def of_event(cls, holder: Holder, finding: Finding) -> Incident:
        """Return what a run has told as an incident; the same with other numbers is not told again."""
        about = f"{finding.kind}: {NUMBERS.sub('#', finding.message)}"
        return cls(finding.kind, finding.message, holder.slot, attempt=holder.attempt, about=about)

    @classmethod
    def of_orphans(cls, slot: str, holder: Holder, orphans: Sequence[ProcessStat]) -> Incident:
        """Return what is left of an attempt that is over."""
        pids = " ".join(str(stat.pid) for stat in orphans[:MOST_NAMED])
        count = "a process lives" if len(orphans) == 1 else f"{len(orphans)} processes live"
        said = f"{count} on after attempt {holder.attempt} was over: {pids}"
        return cls("orphan", said, slot, f"kill {pids}", holder.attempt, lasts=True)


def attempt_over(row: Row, status: SlotStatus, *, is_oom: bool) -> Incident | None:
    """Return what a row of `slots.jsonl` says of an attempt that ended badly; None for any other row."""
    state, code, attempt = row.get("state"), row.get("exit_code"), int(measured(row.get("attempt")) or 0)
    if state not in ("waiting", "given up") or attempt < 1 or code == RESUMABLE:
        return None
    slot, reason = status.slot.name, plain_text(row.get("reason") or "")
    steps = int(measured(row.get("steps")) or 0)
    if state == "given up":
        return Incident("given-up", f"given up: {reason}", slot, _remedy(slot, code), attempt)
    if code == DONE or reason.startswith("was "):
        return None
    if code is None and is_oom:
        said = f"attempt {attempt} was killed at step {steps:,} when the machine ran out of memory"
        return Incident("oom", said, slot, LESS_MEMORY, attempt, about=OVER)
    vain = _vain(row, status.holder, steps)
    kind, often = ("crash-loop", f"; {vain} attempts in a row without a new step") if vain > 1 else ("crash", "")
    said = f"attempt {attempt} ended at step {steps:,}: {reason}{often}"
    return Incident(kind, said, slot, _remedy(slot, code), attempt, about=OVER)


def _vain(row: Row, holder: Holder | None, steps: int) -> int:
    """Return how many attempts in a row brought nothing, with the one of which a row says that it is over."""
    epoch = measured(row.get("epoch"))
    if holder is None or epoch not in (holder.epoch, holder.epoch - 1):
        return 0
    return vain_attempts(holder, steps) if epoch == holder.epoch else holder.vain


def _remedy(slot: str, code: object) -> str:
    return "correct its settings: redline fleet change" if code == BAD_INPUT else f"see {LOGS}/{slot}.log"


def rebooted(boot_id: str, before: set[str]) -> Incident | None:
    """Return a restart of the machine since the fleet was watched last."""
    if not boot_id or not before or boot_id in before:
        return None
    said = "the machine was started again: runs go on from their checkpoints"
    return Incident("reboot", said, about=f"reboot {boot_id}")


def killed_for_memory(before: int | None, now: int | None) -> Incident | None:
    """Return that the kernel has killed processes for lack of memory."""
    if before is None or now is None or now <= before:
        return None
    count = "a process" if now - before == 1 else f"{now - before} processes"
    said = f"the kernel has killed {count} of this machine for lack of memory"
    return Incident("oom", said, remedy=LESS_MEMORY, about=f"oom {now}")


def machine_conditions(machine: MachineState) -> Iterator[Incident]:
    """Yield what is wrong with the machine now."""
    if machine.memory_available_bytes < LEAST_MEMORY_BYTES:
        said = f"{size(machine.memory_available_bytes, 1)} of memory is left"
        yield Incident("memory", said, remedy=LESS_MEMORY, lasts=True)
    disk, shared, heat = machine.disk, machine.shared, machine.heat
    if disk is not None and disk.free_bytes < LEAST_DISK_BYTES:
        said = f"the disk has {size(disk.free_bytes, 1)} free: runs can't save their checkpoints soon"
        yield Incident("disk", said, remedy="make room, or use --set record=best", lasts=True)
    elif disk is not None and disk.free_files is not None and disk.free_files < LEAST_FILES:
        yield Incident("disk", f"the disk can hold {disk.free_files} more files", remedy="remove some", lasts=True)
    if shared is not None and shared.free_bytes < LEAST_SHARED_SHARE * shared.total_bytes:
        said = f"shared memory has {size(shared.free_bytes, 1)} of {size(shared.total_bytes, 1)} free"
        yield Incident("shared-memory", said, remedy="give it more: docker run --shm-size", lasts=True)
    if heat is not None and heat.celsius >= heat.limit_c - MARGIN_C:
        said = f"{plain_text(heat.name)} is at {heat.celsius:.0f} °C, its limit is {heat.limit_c:.0f} °C"
        yield Incident("heat", said, remedy="cool it, or use a lower --concurrency", lasts=True)
