"""Who trains a slot: a lease that only one process holds, on one machine or on several that share a folder.

Each holder makes a file of its own, `leases/<slot>/<epoch>.json`; the highest epoch owns the slot. On one machine a
lease is free as soon as its process is gone. Between machines the holder beats: it counts up a number in its file, and
who waits for the lease watches whether that number still changes; clocks of two machines are never compared. There the
kernel ends a holder that could not beat for some seconds, before anybody else begins.

A file is a block of fixed size that is written in place: a full disk does not stop that.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self

import msgspec
import psutil

from redline.errors import DamagedError, UserError
from redline.files import (
    create_file,
    explained,
    make_own_folder,
    open_own,
    read_bounded,
    remove_temporary,
    replace_file,
)
from redline.fleet.fence import Fence
from redline.fleet.place import Place, here, is_alive, is_shared, start_ticks
from redline.jsonl import SCHEMA, plain_text

LEASES, STOP = "leases", "stop"
BLOCK_BYTES = 4096
MOST_DIGITS = 12  # of an epoch
BEAT_S = 2.0
LOOK_S = 0.25  # for a request to stop, and for another holder
FENCE_S = 12.0  # without a beat, after which a holder is ended where other machines could take over
TIMEOUT_S = 24.0  # without a beat, after which a lease of another machine is free; its processes need 5 s to end
KEPT_EPOCHS = 2
LEFTOVER_S = 3600.0  # age of what a killed process left; clocks of two machines may differ
TRIES, TRY_S = 4, 0.005  # to read a block that is being written


class Holder(msgspec.Struct, frozen=True):
    """What a lease says."""

    slot: str
    epoch: int
    place: Place
    pid: int
    process_start_unix_s: float  # to be shown: the clock may have been set since
    process_start_ticks: int = 0
    began_unix_s: float = 0.0
    beat: int = 0
    state: Literal["running", "ended"] = "running"
    threads: int = 0
    attempt: int = 1
    vain: int = 0  # attempts in a row before this one without a new step
    steps_at_start: int = 0
    most_steps: int = 0  # of the attempts before
    max_minutes: float | None = None  # of training, in all attempts
    steps: int = 0
    run: str = ""  # relative to the fleet
    is_stopped: bool = False  # somebody asked for that
    exit_code: int | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        if Path(self.run).is_absolute() or ".." in Path(self.run).parts:
            raise ValueError("a run is not in its fleet")


class LeaseHeldError(UserError):
    """Another process trains the slot."""


class Watcher:
    """Tells whether the holder of each slot is alive; one on another machine must have beaten lately."""

    def __init__(
        self, folder: Path, *, place: Place | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.place = place or here()
        self._is_shared = is_shared(folder)
        self._clock = clock
        self._heard: dict[str, tuple[tuple[int, int], float]] = {}  # slot → (epoch, beat), when first seen

    def is_alive(self, holder: Holder) -> bool:
        """Tell whether a holder may still be training."""
        if holder.state == "ended":
            return False
        if holder.place.shares_pids(self.place):
            return is_alive(holder.pid, holder.process_start_ticks)
        if not self._is_shared and not holder.place.shares_kernel(self.place):
            return False  # only this machine writes here: it was started again since
        beat = (holder.epoch, holder.beat)
        before, heard_s = self._heard.get(holder.slot, (None, 0.0))
        if beat != before:
            self._heard[holder.slot] = (beat, self._clock())
            return True
        return self._clock() - heard_s < TIMEOUT_S

    def trust(self, slot: str, epoch: int, beat: int) -> None:
        """Take over from another watcher that a holder has been silent for long enough since this beat."""
        self._heard[slot] = ((epoch, beat), self._clock() - TIMEOUT_S)


def read_holder(folder: Path, slot: str) -> Holder | None:
    """Return what the newest lease of a slot says; None if there is none.

    One that can't be read may be somebody's all the same: it counts as running elsewhere until it is seen to be silent.
    """
    home, epochs = folder / LEASES / slot, _epochs(folder / LEASES / slot)
    for path in reversed(epochs):
        if (holder := _read(path, slot)) is not None:
            is_newest = path == epochs[-1]
            return holder if is_newest else _unreadable(holder, home, epochs[-1])
    return None if not epochs else _unreadable(Holder(slot, 0, Place("", "", ""), 0, 0.0), home, epochs[-1])


def ask_to_stop(folder: Path, holder: Holder) -> None:
    """Ask the holder of a lease, wherever it runs, to save itself and end."""
    try:
        replace_file(folder / LEASES / holder.slot / STOP, [f"{holder.epoch}\n".encode()])
    except OSError:  # such as a full disk: a signal needs no room
        if not here().shares_pids(holder.place) or not is_alive(holder.pid, holder.process_start_ticks):
            raise
        os.kill(holder.pid, signal.SIGTERM)


class Lease:
    """A lease that this process holds, until it is ended or the process is."""

    def __init__(self, folder: Path, holder: Holder, fence: Fence | None) -> None:
        self._home = folder / LEASES / holder.slot
        self._path = self._home / f"{holder.epoch:06d}.json"
        self.holder = holder
        self._descriptor = open_own(self._path, os.O_WRONLY)
        self._fence = fence
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        self._refresh: Callable[[], Mapping[str, Any]] = dict

    @classmethod
    def take(cls, folder: Path, slot: str, *, watcher: Watcher, **facts: Any) -> Self:
        """Take the lease of a slot; LeaseHeldError if another process holds it, or is quicker.

        Whether one on another machine is alive takes `TIMEOUT_S` to find out: ask the watcher before.
        """
        home = folder / LEASES / slot
        with explained(UserError, home, before="cannot take the lease: "):
            make_own_folder(home.parent)
            make_own_folder(home)
            remove_temporary(home, idle_s=LEFTOVER_S)
            epochs = _epochs(home)  # first: else a lease that comes up in between would seem to be an old one
            before = read_holder(folder, slot)
            if before is not None and watcher.is_alive(before):
                raise LeaseHeldError(f"{slot} is trained by {describe(before)}")
            holder = Holder(
                slot=slot,
                epoch=_epoch_of(epochs[-1]) + 1 if epochs else 1,
                place=watcher.place,
                pid=os.getpid(),
                process_start_unix_s=psutil.Process().create_time(),
                process_start_ticks=start_ticks(os.getpid()) or 0,
                began_unix_s=time.time(),
                **facts,
            )
            fence = Fence(FENCE_S) if is_shared(folder) else None  # from before anybody can see the lease
            try:
                _create(home, holder)
            except BaseException:
                if fence is not None:
                    fence.set(0.0)
                raise
            for path in epochs[:-KEPT_EPOCHS]:
                path.unlink(missing_ok=True)
            return cls(folder, holder, fence)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def beat_with(self, refresh: Callable[[], Mapping[str, Any]]) -> None:
        """Begin to beat; `refresh` returns the facts that have changed."""
        self._refresh = refresh
        self._thread.start()

    def note(self, **facts: Any) -> None:
        """Say more of this attempt."""
        self._write(**facts)

    def end(self, **facts: Any) -> None:
        """Say how it ended, and let others in."""
        if self._over.is_set():
            return
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        try:
            self._write(state="ended", **facts)
        finally:
            if self._fence is not None:
                self._fence.set(0.0)
            os.close(self._descriptor)

    def _keep(self) -> None:
        next_s = 0.0
        while not self._over.wait(LOOK_S):
            with suppress(OSError, UserError):
                if _epochs(self._home)[-1:] != [self._path]:
                    os.kill(os.getpid(), signal.SIGKILL)  # another process has the slot, or the fleet was removed
            if self._is_asked_to_stop():
                with suppress(OSError, UserError):
                    self._write(is_stopped=True)
                os.kill(os.getpid(), signal.SIGTERM)
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + BEAT_S
                with suppress(OSError, UserError):  # where it matters the fence ends what can't beat
                    self._write(beat=self.holder.beat + 1, **self._refresh())

    def _is_asked_to_stop(self) -> bool:
        """Tell whether a stop was asked for, once."""
        request = self._home / STOP
        with suppress(OSError, ValueError, UserError):
            if int(read_bounded(request, max_bytes=20)) == self.holder.epoch:
                request.unlink(missing_ok=True)
                return True
        return False

    def _write(self, **facts: Any) -> None:
        with self._lock:
            begun_s = time.monotonic()
            holder = msgspec.structs.replace(self.holder, **facts)
            if os.pwrite(self._descriptor, encode(holder), 0) != BLOCK_BYTES:
                raise OSError(errno.EIO, "a lease was written in part", str(self._path))
            self.holder = holder
            if self._fence is not None:
                os.fsync(self._descriptor)  # others read it from the server
                self._fence.set(max(0.001, FENCE_S - (time.monotonic() - begun_s)))


def _create(home: Path, holder: Holder) -> None:
    """Make the file of a lease; LeaseHeldError if there is one as new, or a newer one."""
    path = home / f"{holder.epoch:06d}.json"
    try:
        create_file(path, [encode(holder)])
    except FileExistsError:
        raise LeaseHeldError(f"{holder.slot} is trained by a process that was quicker") from None
    if (newest := _epochs(home)[-1]) != path:  # this process slept between looking and making its file
        path.unlink(missing_ok=True)
        raise LeaseHeldError(f"{holder.slot} is trained by a process that was quicker: {newest.name}")


def wait_until_free(folder: Path, name: str, watcher: Watcher) -> Holder | None:
    """Return the former holder of a lease; LeaseHeldError if it lives, for which one on another machine is watched."""
    first = read_holder(folder, name)
    while (holder := read_holder(folder, name)) is not None and watcher.is_alive(holder):
        if (
            first is None
            or holder.place.shares_pids(watcher.place)
            or (holder.epoch, holder.beat) != (first.epoch, first.beat)
        ):
            raise LeaseHeldError(f"{name} is trained by {describe(holder)}")
        time.sleep(LOOK_S)
    return holder


def describe(holder: Holder) -> str:
    """Name the process that holds a lease."""
    return f"process {holder.pid} on {plain_text(holder.place.host)}" if holder.pid else "a process that is unknown"


def encode(holder: Holder) -> bytes:
    """Return the block that stands for a holder, with a checksum of what it says."""
    for characters in (200, 60, 0):
        reason = plain_text(holder.reason, characters) if characters else ""
        lease = json.dumps(msgspec.to_builtins(msgspec.structs.replace(holder, reason=reason)))
        block = f'{{"schema": {SCHEMA}, "crc": {zlib.crc32(lease.encode())}, "lease": {lease}}}'.encode()
        if len(block) < BLOCK_BYTES:
            return block.ljust(BLOCK_BYTES - 1) + b"\n"
    raise ValueError(f"a lease of {len(block)} bytes")


def _read(path: Path, slot: str) -> Holder | None:
    """Return what a file says; None if it is not whole, or says nothing of this slot."""
    for _ in range(TRIES):
        with suppress(OSError, DamagedError, ValueError, RecursionError, KeyError, TypeError, msgspec.MsgspecError):
            text = read_bounded(path, max_bytes=2 * BLOCK_BYTES).decode()
            content = json.loads(text)
            lease = text[text.index('"lease": ') + len('"lease": ') : text.rindex("}")]
            if content["schema"] == SCHEMA and content["crc"] == zlib.crc32(lease.encode()):
                holder = msgspec.convert(content["lease"], Holder)
                return holder if holder.slot == slot and holder.epoch == _epoch_of(path) else None
        time.sleep(TRY_S)
    return None


def _unreadable(before: Holder, home: Path, path: Path) -> Holder:
    """Return a holder of whom nothing is known but that its file changes, with the facts of the one before."""
    content = b""
    with suppress(OSError, UserError):
        content = read_bounded(home / path.name, max_bytes=2 * BLOCK_BYTES)
    return msgspec.structs.replace(
        before,
        epoch=_epoch_of(path),
        place=Place("", "", ""),
        pid=0,
        beat=zlib.crc32(content),
        state="running",
        exit_code=None,
        is_stopped=False,
        reason="",
    )


def _epochs(home: Path) -> list[Path]:
    """Return the lease files of a slot, the newest last; none if there is no folder."""
    try:
        names = [path.name for path in home.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    stems = [name.removesuffix(".json") for name in names if name.endswith(".json")]
    found = [stem for stem in stems if stem.isascii() and stem.isdecimal() and len(stem) <= MOST_DIGITS]
    return [home / f"{stem}.json" for stem in sorted(found, key=int)]


def _epoch_of(path: Path) -> int:
    return int(path.stem)
