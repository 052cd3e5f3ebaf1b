"""A fleet of one run whose machine, processes and files a test plays, for the tests of its health."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from redline.fleet.health import Health
from redline.fleet.incidents import Incident
from redline.fleet.lease import Holder
from redline.fleet.listing import Slot
from redline.fleet.machine_state import Heat, MachineState, Space
from redline.fleet.place import Place
from redline.fleet.process_table import ProcessTable
from redline.fleet.slots import SLOTS_JSONL, SlotStatus, State, row_of
from redline.jsonl import RecordWriter
from redline.monitor.processes import ProcessStat

GB, MB = 10**9, 10**6
LOOK_S = 10.0
RUNNER = 5_000_000  # beyond all process ids of a real machine
PLACE = Place("machine", "boot-1", "pid:[1]")
HEALTHY = MachineState(
    boot_id="boot-1",
    memory_available_bytes=8 * GB,
    disk=Space(50 * GB, 100 * GB, 1_000_000),
    shared=Space(4 * GB, 4 * GB),
    heat=Heat("core", 60.0, 100.0),
    oom_kills=0,
)
SLOT = Slot("catch-dqn-s1", "catch", "dqn", 1, {})
HOLDER = Holder("catch-dqn-s1", 1, PLACE, RUNNER, 0.0, run="run")


def process(pid: int = RUNNER, **facts: Any) -> ProcessStat:
    usual = ProcessStat(pid, "python", "S", 1, RUNNER, 100, 0.0, 0.0, 4, 400 * MB)
    return replace(usual, **facts)


@dataclass
class Stage:
    """A fleet of one run whose machine, processes and files the test plays."""

    folder: Path
    now_s: float = 0.0
    machine: MachineState = HEALTHY
    processes: dict[int, ProcessStat] = field(default_factory=lambda: {RUNNER: process()})
    holder: Holder = HOLDER
    state: State = "running"
    row: dict[str, Any] = field(default_factory=lambda: {"steps": 0, "unix_s": 1.0, "roles": [{"pid": RUNNER}]})
    told: list[tuple[float, Incident]] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.folder / "run").mkdir()
        self.start()

    def start(self) -> None:
        """Begin with a new supervisor."""
        self.health = Health(
            self.folder,
            place=PLACE,
            look_at_machine=lambda _: self.machine,
            look_at_processes=lambda: ProcessTable(dict(self.processes)),
            clock=lambda: self.now_s,
        )

    def status(self, **facts: Any) -> SlotStatus:
        usual = SlotStatus(SLOT, self.state, self.holder.attempt, self.folder / "run", holder=self.holder)
        return replace(usual, **facts)

    def look(self) -> list[Incident]:
        with RecordWriter(self.folder / "run" / "metrics.jsonl") as writer:
            writer.write(self.row)
        found = self.health.sample([self.status()], expected=1)
        self.told += [(self.now_s, incident) for incident in found]
        self.now_s += LOOK_S
        return found

    def live(self, seconds: float, change: Callable[[float], None] = lambda time_s: None, *, steps: int = 500) -> None:
        """Let the run go on, with looks at it."""
        for _ in range(int(seconds / LOOK_S)):
            self.row["steps"] += steps
            self.work(1.0)
            change(self.now_s)
            self.look()

    def work(self, cores: float) -> None:
        stat = self.processes.get(RUNNER)
        if stat is not None:
            self.processes[RUNNER] = replace(stat, cpu_s=stat.cpu_s + cores * LOOK_S)

    def grow(self, num_bytes: float) -> None:
        stat = self.processes[RUNNER]
        self.processes[RUNNER] = replace(stat, rss_bytes=stat.rss_bytes + int(num_bytes))

    def write_row(self, **facts: Any) -> None:
        """Write down what a supervisor does."""
        with RecordWriter(self.folder / SLOTS_JSONL) as writer:
            writer.write({**row_of(self.status()), **facts})

    @property
    def kinds(self) -> list[str]:
        return [incident.kind for _, incident in self.told]
