"""Does one thing to a copy of a run, again and again, each time killed at a later call to the kernel.

    kill_driver.py <action> <run> <copies>

Copy n of the run is worked on by a process that gets a real SIGKILL just before its n-th call that
changes the disk; the last copy is the one on which the action came to its end. Prints how many there are.
"""

import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from redline.jsonl import cut_after
from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import RunDirectory

KILLED_AT = ("fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "write", "ftruncate")


def save(run_path: Path, steps: int) -> None:
    with RunDirectory.open(run_path) as run, CheckpointStore(run) as store:
        chunk = store.segments.append(b"new chunk" * 100)
        store.save(
            steps=steps,
            files={"weights.safetensors": b"new weights" * 1000, "optimizer.safetensors": b"new optimizer"},
            state={"content": "new"},
            replay={"chunks": [chunk]},
        )


def prune(run_path: Path) -> None:
    with RunDirectory.open(run_path) as run, CheckpointStore(run) as store:
        store.prune()


def cut(run_path: Path) -> None:
    cut_after(run_path / "episodes.jsonl", 100)


ACTIONS: dict[str, Callable[[Path], None]] = {
    "save": lambda run: save(run, 200),
    "save_same_steps": lambda run: save(run, 100),
    "prune": prune,
    "cut": cut,
}


def die_at_call(number: int) -> None:
    calls = count(1)

    def armed(call: Callable[..., Any]) -> Callable[..., Any]:
        def call_or_die(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return call_or_die

    for name in KILLED_AT:
        setattr(os, name, armed(getattr(os, name)))


def is_killed(action: Callable[[Path], None], run_path: Path, number: int) -> bool:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            die_at_call(number)
            action(run_path)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status not in (0, -signal.SIGKILL):
        sys.exit(f"call {number}: the action failed with {status}")
    return status != 0


def main() -> None:
    action, run, copies = ACTIONS[sys.argv[1]], Path(sys.argv[2]), Path(sys.argv[3])
    for number in count(1):
        copy = copies / str(number)
        shutil.copytree(run, copy)
        if not is_killed(action, copy, number):
            sys.stdout.write(str(number))
            return


if __name__ == "__main__":
    main()
