"""A process that forks runners of slots whose training is a few rows; everything else about them is real.

Each line on stdin is a JSON object: {"run": FOLDER, "slot": NAME}, {"supervise": FOLDER} or {"take": FOLDER, "slot":
NAME, "shared": BOOL}. The process id of the fork is the answer.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from redline.fleet import lease, runner, supervisor
from redline.fleet.engines.base import Engine
from redline.fleet.lease import Lease, LeaseHeldError, Watcher
from redline.fleet.runner import run_slot
from redline.jsonl import encode_row
from redline.runs.manifest import checkpoint_folders

LINE_S = 0.02
STEP_S = 0.01
FENCE_S, TIMEOUT_S = 1.0, 2.0  # of leases that are said to be shared
PLAN, BEGUN = "plan.json", "begun.jsonl"
asked_to_stop = False


def train(folder: Path, slot: str, arguments: Sequence[str]) -> int:
    """Stand for `redline train` and `redline resume`: write rows and checkpoints as the plan of the slot says."""
    plans = json.loads((folder / PLAN).read_text()).get(slot, ["done"])
    run = _begin(arguments) if arguments[0] == "train" else Path(arguments[1])
    attempt = sum(json.loads(line)["slot"] == slot for line in _lines(folder / BEGUN))
    plan = plans[min(attempt, len(plans) - 1)]
    steps = int(checkpoint_folders(run / "checkpoints")[0].name)
    _append(folder / BEGUN, {"slot": slot, "pid": os.getpid(), "steps": steps, "plan": plan})
    if plan == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if plan == "hang":
        signal.pause()
    if plan in ("bad", "fail"):
        os.write(2, f"redline: it is {plan}\n".encode())
        return 2 if plan == "bad" else 1
    if plan == "fail late":
        _save(run, steps + 10)
        return 1
    end = 10**9 if plan == "endless" else steps + 30
    while steps < end and not asked_to_stop:
        time.sleep(STEP_S)
        steps += 1
        _append(run / "metrics.jsonl", {"unix_s": time.time(), "steps": steps, "mean_return_100": 1.5, "time_s": steps})
    _save(run, steps)
    _append(run / "events.jsonl", {"event": "stop", "reason": "SIGTERM" if asked_to_stop else "max-steps reached"})
    return 75 if asked_to_stop or plan == "preempted" else 0


def _begin(arguments: Sequence[str]) -> Path:
    parent = Path(arguments[arguments.index("--log-dir") + 1]) / "game" / "algorithm"
    run = parent / f"{time.time_ns():020d}-s1"
    (run / "checkpoints" / "0").mkdir(parents=True)
    return run


def _save(run: Path, steps: int) -> None:
    (run / "checkpoints" / str(steps)).mkdir(exist_ok=True)
    _append(run / "metrics.jsonl", {"unix_s": time.time(), "steps": steps})


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _append(path: Path, row: dict[str, Any]) -> None:
    with path.open("ab") as file:
        file.write(encode_row(row))


# What is forked


def run(asked: dict[str, Any]) -> int:
    """Train a slot."""
    folder = Path(asked["run"])

    def stop(*_: object) -> None:
        global asked_to_stop  # noqa: PLW0603
        asked_to_stop = True

    signal.signal(signal.SIGTERM, stop)
    with suppress(LeaseHeldError):
        return run_slot(folder, asked["slot"], 1, lambda arguments: train(folder, asked["slot"], arguments))
    return 1


def supervise(asked: dict[str, Any], ask: Callable[[dict[str, Any]], None]) -> int:
    """Supervise a fleet whose runs this process forks."""
    folder = Path(asked["supervise"])
    supervisor.supervise(folder, ForkEngine(folder, ask), Silent(), lambda: None)
    return 0


def take(asked: dict[str, Any]) -> int:
    """Take the lease of a slot and hold it; 3 if another process was quicker."""
    if asked.get("shared"):
        lease.is_shared = lambda _: True  # type: ignore[attr-defined]
        lease.FENCE_S, lease.TIMEOUT_S = FENCE_S, TIMEOUT_S
        lease.BEAT_S = 0.1
    if at_s := asked.get("at_s"):
        time.sleep(max(0.0, at_s - time.monotonic()))
    try:
        held = Lease.take(Path(asked["take"]), asked["slot"], watcher=Watcher(Path(asked["take"])))
    except LeaseHeldError:
        return 3
    held.beat_with(dict)
    if asked.get("deaf"):  # nothing it writes arrives any more
        held._write = lambda **_: None  # type: ignore[method-assign]
    time.sleep(asked.get("hold_s", 60.0))
    held.end(exit_code=0)
    return 0


class ForkEngine:
    """Lets the zygote fork runners."""

    def __init__(self, folder: Path, ask: Callable[[dict[str, Any]], object]) -> None:
        self._folder = folder
        self._ask = ask

    def place(self, slot: str, threads: int) -> None:
        self._ask({"run": str(self._folder), "slot": slot})

    def poll(self) -> list[str]:
        return []

    def exit_code(self, slot: str) -> int | None:
        return None

    def cores(self) -> int | None:
        return None

    def close(self) -> None:
        pass


class Silent:
    """Shows nothing."""

    def note(self, text: str) -> None:
        pass

    def show(self, *_: object) -> None:
        pass


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel buries what ends
    lease.LOOK_S = runner.POLL_S = LINE_S
    supervisor.POLL_S = supervisor.LONGEST_POLL_S = LINE_S
    supervisor.HEALTH_S = 1e9
    reader, writer = os.pipe()
    selector = selectors.DefaultSelector()
    for descriptor in (0, reader):
        selector.register(descriptor, selectors.EVENT_READ)
    rest = {0: b"", reader: b""}
    while True:
        for key, _ in selector.select():
            if not (data := os.read(key.fd, 65_536)) and key.fd == 0:
                return
            *lines, rest[key.fd] = (rest[key.fd] + data).split(b"\n")
            for line in lines:
                pid = _fork(json.loads(line), lambda asked: os.write(writer, json.dumps(asked).encode() + b"\n"))
                if key.fd == 0:
                    os.write(1, f"{pid}\n".encode())


def _fork(asked: dict[str, Any], ask: Callable[[dict[str, Any]], Any]) -> int:
    if pid := os.fork():
        return pid
    code = 99
    try:
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(2, 1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kind: Any = supervise if "supervise" in asked else take if "take" in asked else run
        code = kind(asked, ask) if kind is supervise else kind(asked)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


_: type[Engine] = ForkEngine

if __name__ == "__main__":
    main()
