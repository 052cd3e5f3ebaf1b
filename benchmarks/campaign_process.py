"""Starts commands of Redline in forks of one process, ends those that hang, and finds what they left running."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from campaign_place import Place

AWAKE = "awake"  # in the folder of a case, once a fresh interpreter takes signals
SPARE = "campaign-spare"  # name of a fork that waits to become a process of the command
MARK = "REDLINE_CAMPAIGN_MARK"
GONE_WITHIN_S = 5.0
MAX_SAID_BYTES = 2_000_000
BUSY_FACTOR = 10.0  # by which a limit is longer for a command that gets little of the processor
IDLE_SHARE = 0.25  # of the limit: less processor time than that is little
LOOK_S = 10.0
START_LIMIT_S = 1_800.0  # seconds of work, but the machine may be busy
TRACE_S = 0.5  # to write where it hangs
MEMORY_BYTES = 12_000_000_000  # of address space: protects the machine
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Order:
    """A command, and under which conditions it runs."""

    argv: Sequence[str]
    limit_s: float = 30.0  # after which it hangs
    ask_after_s: float | None = None  # to end, by SIGTERM
    environ: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    cgroups: Sequence[str] = ()
    out: str | None = None  # a file that stdout goes to in place of a new one
    is_cold: bool = False  # in a fresh interpreter, which imports everything
    spares: int = 0  # forks that stand ready to become interpreters which load Redline
    clock_jump_s: tuple[float, float] | None = None  # of the command's own process: after so long, by so much


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it said and left."""

    argv: Sequence[str]
    code: int
    out: str
    err: str
    seconds: float
    is_hung: bool = False
    was_asked: bool = False  # by SIGTERM, because it went on
    left: Sequence[str] = ()  # processes that still ran after 5 s
    peak_bytes: int = 0


class Running:
    """A command that runs."""

    def __init__(self, zygote: "Zygote", order: Order, place: Place, said: tuple[Path, Path]) -> None:
        self.pid = int(zygote.answer(60.0)["pid"])
        self.order = order
        self.begun_s = time.monotonic()
        self._zygote, self._place, self._said = zygote, place, said
        self._answer: dict[str, Any] | None = None

    def has_ended(self, wait_s: float = 0.0) -> bool:
        """Tell whether it has ended, after waiting for it."""
        if self._answer is None:
            with suppress(TimeoutError):
                self._answer = self._zygote.answer(wait_s)
                self._zygote.spent_s += self._answer["processor_s"]
        return self._answer is not None

    def heard(self) -> str:
        """Return what it has written to stdout so far."""
        return _read(self._said[0])

    def _ends_within(self, limit_s: float) -> bool:
        """Wait for the end; on a busy machine longer, as long as it gets little of the processor but uses that."""
        until_s = time.monotonic() + BUSY_FACTOR * limit_s
        if self.has_ended(limit_s):
            return True
        used_s = before_s = self._zygote.processor_s()
        while used_s < limit_s * IDLE_SHARE and time.monotonic() < until_s:
            if self.has_ended(LOOK_S):
                return True
            used_s = self._zygote.processor_s()
            if used_s - before_s < LOOK_S * IDLE_SHARE / BUSY_FACTOR:
                return False
            before_s = used_s
        return False

    def send(self, number: int, pid: int | None = None) -> None:
        """Send a signal to it or to another process, if that is there."""
        with suppress(ProcessLookupError):
            os.kill(self.pid if pid is None else pid, number)

    def finish(self) -> Outcome:
        """Wait for the end, ask for it or enforce it; return what there was."""
        order, was_asked, is_hung = self.order, False, False
        if order.ask_after_s is not None and not self.has_ended(order.ask_after_s):
            self.send(signal.SIGTERM)
            was_asked = True
        if not self._ends_within(order.limit_s):
            is_hung = True
            self.send(signal.SIGUSR2)
            time.sleep(TRACE_S)
            self.send(signal.SIGKILL)
            self.has_ended(60.0)
        seconds = time.monotonic() - self.begun_s
        left = self._zygote.wait_until_alone(0.0 if is_hung else GONE_WITHIN_S)
        assert self._answer is not None, "the zygote says nothing"  # noqa: S101
        out, err = (_read(path) for path in self._said)
        return Outcome(
            order.argv,
            self._answer["code"],
            out,
            err,
            seconds,
            is_hung=is_hung,
            was_asked=was_asked,
            left=() if is_hung else left,
            peak_bytes=self._answer["peak_bytes"],
        )


class Zygote:
    """The process from which commands are forked."""

    def __init__(self, mark: str, script: Path = HERE / "campaign_zygote.py", *, bytecode: Path | None = None) -> None:
        """Start it and wait until it has imported Redline; what is compiled is kept in `bytecode` for all processes."""
        self.mark = mark
        variables = {MARK: mark, "PYTHONIOENCODING": "utf-8:strict", "NO_COLOR": "1", "COLUMNS": "120"}
        if bytecode is not None:
            variables |= {"PYTHONPYCACHEPREFIX": str(bytecode), "PYTHONDONTWRITEBYTECODE": ""}  # empty: not set
        self._process = subprocess.Popen(
            [sys.executable, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **variables},
        )
        self._heard = b""
        self._number = 0
        self.spent_s = 0.0  # processor time of all commands that have ended
        self.answer(START_LIMIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.others():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def start(self, order: Order, place: Place) -> Running:
        """Start a command in a place."""
        self._number += 1
        said = (place.root / f"out-{self._number}", place.root / f"err-{self._number}")
        for path in said:
            path.touch()
        line = {
            "argv": list(order.argv),
            "cwd": str(place.cwd),
            "environ": {"HOME": str(place.scratch), "TMPDIR": str(place.scratch), MARK: self.mark, **order.environ},
            "limits": {"core": 0, "memory": MEMORY_BYTES, **order.limits},
            "cgroups": list(order.cgroups),
            "out": order.out or str(said[0]),
            "err": str(said[1]),
            "awake": str(place.root / AWAKE) if order.is_cold else None,
            "spares": order.spares,
            "clock_jump_s": order.clock_jump_s,
        }
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.write(json.dumps(line).encode() + b"\n")
        self._process.stdin.flush()
        return Running(self, order, place, said)

    def run(self, order: Order, place: Place) -> Outcome:
        """Run a command to its end."""
        return self.start(order, place).finish()

    def answer(self, wait_s: float) -> dict[str, Any]:
        """Return the next answer; TimeoutError if there is none in time."""
        assert self._process.stdout is not None  # noqa: S101
        until_s = time.monotonic() + wait_s
        while b"\n" not in self._heard:
            left_s = until_s - time.monotonic()
            if not select.select([self._process.stdout], [], [], max(left_s, 0.0))[0]:
                raise TimeoutError
            piece = os.read(self._process.stdout.fileno(), 4_096)
            if not piece:
                raise RuntimeError("the process from which commands are forked has ended")
            self._heard += piece
        line, _, self._heard = self._heard.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def others(self) -> dict[int, str]:
        """Return all living processes with the mark, besides the zygote itself, with their names."""
        return {pid: name for pid, name in marked(self.mark).items() if pid != self._process.pid}

    def targets(self) -> list[int]:
        """Return the processes of a command, without the spares that are none of it yet."""
        return sorted(pid for pid, name in self.others().items() if name != SPARE)

    def processor_s(self) -> float:
        """Return the processor time of all that runs."""
        return sum(processor_s(pid) for pid in self.others())

    def wait_until_alone(self, patience_s: float) -> list[str]:
        """Wait until nothing else runs; kill and return what still does."""
        until_s = time.monotonic() + patience_s
        while (left := self.others()) and time.monotonic() < until_s:
            time.sleep(0.02)
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while self.others():
            time.sleep(0.02)
        return sorted(left.values())


def marked(mark: str) -> dict[int, str]:
    """Return the living processes whose environment carries a mark, with their names."""
    needle = f"{MARK}={mark}".encode()
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if needle not in (folder / "environ").read_bytes():
                continue
            name, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
        except OSError:
            continue
        if rest.split()[0] not in ("Z", "X"):
            found[int(folder.name)] = name.partition("(")[2]
    return found


def processor_s(pid: int) -> float:
    """Return the processor time of a process, 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for(look: Callable[[], object], running: Running, timeout_s: float, poll_s: float = 0.01) -> bool:
    """Wait until something is seen, the command has ended or the time is over; tell whether it was seen."""
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s:
        if look():
            return True
        if running.has_ended(poll_s):
            return bool(look())
    return False


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(MAX_SAID_BYTES).decode(errors="surrogateescape")
