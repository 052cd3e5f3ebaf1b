"""A `redline …` as a user starts it, seen from outside: its processes, its memory, its records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from redline.jsonl import read_records
from redline.runs.manifest import CHECKPOINTS, checkpoint_folders, newest_valid, steps_of
from waiting import PATIENCE_S, WaitedInVainError, wait_for

MARK = "REDLINE_TEST_MARK"
NAME_BYTES = 15  # that the kernel keeps of a process's name
# in PYTHONPATH they make the envs of the tests known to every process
ENVS_OF_TESTS = (str(Path(__file__).parent / "failing_site"), str(Path(__file__).parents[2]))
GONE_WITHIN_S = 5.0  # after a supervisor was killed

Memory = tuple[str, str]  # device and inode


def name_of(role: str) -> str:
    """Return the name that the kernel shows of a role's process."""
    return f"redline-{role}"[:NAME_BYTES]


class WatchedRun(AbstractContextManager["WatchedRun"]):
    """A program in a process group of its own; whatever it started bears a mark, also when its parent is gone."""

    def __init__(self, folder: Path, *args: object, variables: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self._mark = uuid.uuid4().hex
        self._said = folder / f"said-{self._mark}"
        paths = os.pathsep.join([*ENVS_OF_TESTS, *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": paths, **(variables or {}), MARK: self._mark}
        command = [sys.executable, "-m", "redline.cli.main", *(str(arg) for arg in args)]
        with self._path("out").open("wb") as out, self._path("err").open("wb") as err:
            self.program = subprocess.Popen(command, stdout=out, stderr=err, env=environment, start_new_session=True)
        self.memories: set[Memory] = set()  # that its processes were seen to share

    def __exit__(self, *_: object) -> None:
        """End all of it, at once."""
        self.program.kill()
        self.program.wait()
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self.processes(), "all processes have ended")

    def _path(self, stream: str) -> Path:
        return self.folder / f"{self._said.name}.{stream}"

    # What it says

    @property
    def out(self) -> str:
        """What it has printed."""
        return self._path("out").read_text()

    @property
    def err(self) -> str:
        """What it has printed on stderr."""
        return self._path("err").read_text()

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end, and return its exit code."""
        wait_for(lambda: self.program.poll() is not None, f"{self.err[-2_000:]} {self.out[-2_000:]} ends", timeout_s)
        code: int = self.program.returncode
        return code

    # What it runs

    def processes(self) -> dict[int, str]:
        """Return all living processes that came of it, with their names; a zombie is none."""
        return {pid: name for pid, name in _living() if f"{MARK}={self._mark}".encode() in _read(pid, "environ")}

    def pid(self, role: str) -> int | None:
        """Return the process of a role, if there is one."""
        return next((pid for pid, name in self.processes().items() if name == name_of(role)), None)

    def find_process(self, words: str) -> int | None:
        """Return the process that was started with these words in its command line and has no role."""
        for pid, name in self.processes().items():
            if words.encode() in _read(pid, "cmdline") and not name.startswith("redline-"):
                return pid
        return None

    def wait_for_role(self, role: str, *, other_than: int | None = None) -> int:
        """Wait until a role has a process, or another one than before; return it."""
        wait_for(lambda: self.pid(role) not in (None, other_than), f"there is a new {role}: {self.err} {self.out}")
        return self.pid(role) or 0

    def note_memories(self) -> set[Memory]:
        """Look which memory its processes share; remember it."""
        found = {memory for pid in self.processes() for memory in mapped_memories(pid)}
        self.memories |= found
        return found

    def left_behind(self) -> list[str]:
        """Return the processes that still live, and the memory that was seen before and is still there."""
        processes = [f"process {pid} {name}" for pid, name in self.processes().items()]
        held = {memory for pid, _ in _living() for memory in mapped_memories(pid)}
        return processes + [f"memory {memory}" for memory in self.memories & held]

    def wait_until_gone(self, timeout_s: float = GONE_WITHIN_S) -> float:
        """Wait until nothing is left; return the seconds that it took."""
        try:
            return wait_for(lambda: not self.left_behind(), "all is gone", timeout_s)
        except WaitedInVainError as error:
            error.add_note(f"there is still {', '.join(self.left_behind())}")
            raise

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to the whole process group, as a terminal does."""
        os.killpg(self.program.pid, number)


def failing_variables(folder: Path, how: str) -> dict[str, str]:
    """Return what lets the env test/Failing-v0 fail in that way."""
    lives = folder / "lives"
    lives.mkdir()
    return {"LIVES": str(lives), "FAILS": how}


class Records:
    """What the run directory says."""

    def __init__(self, run: Path) -> None:
        self.run = run

    def all_events(self) -> list[dict[str, Any]]:
        """Return the events, in their order."""
        path = self.run / "events.jsonl"
        return read_records(path) if path.exists() else []

    def events(self, name: str, **facts: object) -> list[dict[str, Any]]:
        """Return the events of a name in which these facts are so."""
        rows = self.all_events()
        return [row for row in rows if row["event"] == name and all(row.get(key) == facts[key] for key in facts)]

    def rows(self, role: str) -> list[dict[str, Any]]:
        """Return the episodes of a role."""
        path = self.run / "episodes.jsonl"
        return [row for row in read_records(path) if row["role"] == role] if path.exists() else []

    @property
    def steps(self) -> int:
        """Steps at the newest episode."""
        return int((self.rows("actor") or [{"steps": 0}])[-1]["steps"])

    @property
    def saved_steps(self) -> int:
        """Steps of the newest checkpoint; -1 if there is none."""
        folder = self.run / CHECKPOINTS
        return max((steps_of(found) for found in checkpoint_folders(folder)), default=-1) if folder.exists() else -1

    def saved_state(self) -> dict[str, Any]:
        """Return counters and the like of the newest checkpoint, which must be whole."""
        checkpoint = newest_valid(self.run)
        assert checkpoint.skipped == ()
        return checkpoint.state

    def check_counts(self) -> int:
        """Check that the newest checkpoint counts each recorded episode once; return how many there are."""
        rows, state = self.rows("actor"), self.saved_state()
        rows = [row for row in rows if row["steps"] <= state["counters"]["steps"]]
        assert len(rows) == state["counters"]["episodes"]
        addresses = [(row["lane"], row["seed"], row["seed_offset_steps"]) for row in rows]
        assert len(set(addresses)) == len(rows)
        assert [row["steps"] for row in rows] == sorted(row["steps"] for row in rows)
        assert sum(row["length_steps"] for row in rows) <= state["counters"]["steps"]
        recent = state["recent_returns"]
        assert [row["return"] for row in rows[len(rows) - len(recent) :]] == recent
        return len(rows)

    def check_evaluations(self, *, episodes: int) -> int:
        """Check that each evaluation was recorded once and whole; return how many there are."""
        counts = Counter(row["evaluation"] for row in self.rows("greedy"))
        assert counts == dict.fromkeys(range(1, len(counts) + 1), episodes)
        return len(counts)


def find_run(log_dir: Path, timeout_s: float = PATIENCE_S) -> Records:
    """Wait for the one run directory."""
    wait_for(lambda: list(log_dir.glob("*/*/*/run.json")), "there is a run", timeout_s)
    (path,) = log_dir.glob("*/*/*/run.json")
    return Records(path.parent)


@contextmanager
def nothing_left_in_shm() -> Iterator[None]:
    """Check that no file is left in /dev/shm that no process maps."""
    before = _forsaken_files()
    yield
    assert _forsaken_files() <= before


def said_object(run: WatchedRun) -> dict[str, Any]:
    """Return the one JSON object that --json prints."""
    found: dict[str, Any] = json.loads(run.out)
    return found


def mapped_memories(pid: int) -> set[Memory]:
    """Return Redline's shared memories that a process maps or holds a descriptor of."""
    found = set()
    for line in _read(pid, "maps").decode(errors="replace").splitlines():
        if "/memfd:redline" in line:
            _, _, _, device, inode, *_ = line.split()
            found.add((device, inode))
    return found


def _living() -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            name, _, rest = _read(int(folder.name), "stat").decode(errors="replace").rpartition(")")
            if rest.split()[:1] not in ([], ["Z"], ["X"]):
                yield int(folder.name), name.partition("(")[2]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _forsaken_files() -> set[str]:
    files = {str(path) for path in Path("/dev/shm").iterdir()}  # noqa: S108  it is looked at, not written to
    mapped = "".join(_read(pid, "maps").decode(errors="replace") for pid, _ in _living())
    return {file for file in files if file not in mapped}
