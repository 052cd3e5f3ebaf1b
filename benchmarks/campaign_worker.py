"""Runs cases of the campaign one after the other, with mounts and a /dev/shm of its own where this user may have them.

Cases come as lines such as `kill:12` on stdin; each is answered by its row, one line of JSON on stdout.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import campaign_damage
import campaign_kills
import campaign_lines
import campaign_shortages
from campaign_oracles import Fault
from campaign_place import Place
from campaign_process import Zygote
from campaign_rows import Row
from campaign_shortages import ALONE
from campaign_workshop import Workshop
from recording import say
from redline.runs.host import commit

SHM = "/dev/shm"  # noqa: S108  a private one is mounted there
SHM_SIZE = "size=512m"
KEEP = "--keep"
READY = "ready"  # said first


@dataclass(frozen=True)
class Kind:
    """How a case of this kind is drawn, run and measured."""

    draw: Callable[..., Any]  # (workshop, seed, index) → case
    run: Callable[[Any, Workshop, Place], list[Fault]]
    size: Callable[[Any], int]


KINDS = {
    "line": Kind(
        lambda workshop, *, seed, index: campaign_lines.draw_line(workshop.commands(), seed=seed, index=index),
        campaign_lines.run_line,
        campaign_lines.size_of,
    ),
    "damage": Kind(campaign_damage.draw_damage, campaign_damage.run_damage, campaign_damage.size_of),
    "kill": Kind(campaign_kills.draw_strike, campaign_kills.run_strike, campaign_kills.size_of),
    "shortage": Kind(campaign_shortages.draw_shortage, campaign_shortages.run_shortage, campaign_shortages.size_of),
}


class Worker:
    """Runs cases of one seed, and keeps their folders if it is told to."""

    def __init__(self, folder: Path, *, seed: int, keep: bool) -> None:
        self._cases = Path(tempfile.mkdtemp(prefix="cases-", dir=folder))
        self._mark = uuid.uuid4().hex
        self._seed, self._keep, self._commit = seed, keep, commit()
        self._bytecode = folder / "bytecode"
        self._workshop = Workshop(Zygote(self._mark, bytecode=self._bytecode), folder)

    def close(self) -> None:
        """End what runs, and remove the cases."""
        self._workshop.zygote.__exit__()
        if not self._keep:
            shutil.rmtree(self._cases, ignore_errors=True)

    def run(self, name: str, index: int) -> Row:
        """Run one case and return its row."""
        kind, begun_s, spent_s = KINDS[name], time.monotonic(), self._spent_s()
        case = kind.draw(self._workshop, seed=self._seed, index=index)
        skipped = campaign_shortages.why_skipped(case) if name == "shortage" else None
        place = Place(self._cases / f"{name}-{index}").fill()
        faults: list[Fault] = []
        if skipped is None:
            try:
                faults = kind.run(case, self._workshop, place)
            except Exception as error:  # a fault of the campaign itself must not end it
                say(traceback.format_exc())
                faults = [Fault("campaign", f"{type(error).__name__}: {error}"[:200])]
                self._begin_again()
        if not self._keep:
            place.remove()
        return {
            **{"kind": name, "index": index, "seed": self._seed, "commit": self._commit},
            **{"seconds": time.monotonic() - begun_s, "processor_s": self._spent_s() - spent_s},
            **{"faults": [fault.row() for fault in faults], "skipped": skipped},
            **{"case": case.row(), "size": kind.size(case), "place": str(place.root) if self._keep else None},
        }

    def _spent_s(self) -> float:
        """Return the processor time of all commands, and of this process."""
        return self._workshop.zygote.spent_s + time.process_time()

    def _begin_again(self) -> None:
        spent_s = self._workshop.zygote.spent_s
        self._workshop.zygote.__exit__()
        self._workshop.zygote = Zygote(self._mark, bytecode=self._bytecode)
        self._workshop.zygote.spent_s = spent_s


def stay_alone() -> None:
    """Begin again with mounts and a /dev/shm of our own, where this user may have them."""
    if os.environ.get(ALONE) == "1":
        subprocess.run(["mount", "-t", "tmpfs", "-o", SHM_SIZE, "tmpfs", SHM], check=True)
        return
    unshare = shutil.which("unshare")
    if os.environ.get(ALONE) == "0" or unshare is None:
        return
    private = [unshare, "--mount", "--propagation", "private"]
    is_able = (
        subprocess.run([*private, "mount", "-t", "tmpfs", "tmpfs", SHM], check=False, capture_output=True).returncode
        == 0
    )
    os.environ[ALONE] = "1" if is_able else "0"
    if is_able:
        os.execv(unshare, [*private, sys.executable, *sys.argv])  # noqa: S606


def main(folder: str, seed: str, *keep: str) -> None:
    """Obey until stdin ends."""
    stay_alone()
    worker = Worker(Path(folder), seed=int(seed), keep=KEEP in keep)
    print(READY, flush=True)
    try:
        for line in sys.stdin:
            kind, _, index = line.strip().partition(":")
            print(json.dumps(worker.run(kind, int(index))), flush=True)
    finally:
        worker.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
