"""Messages from a process to its supervisor: lines of JSON through a pipe, which a reader never waits for."""

from __future__ import annotations

import json
import os
import weakref
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from multiprocessing.reduction import DupFd
from typing import Any

from redline.records import as_json_value
from redline.runtime.actor import Episode

READ_BYTES = 1 << 16

Message = dict[str, Any]


def row_of(episode: Episode) -> dict[str, Any]:
    """Return an episode as a message can hold it."""
    trace = None if episode.trace is None else b64encode(episode.trace).decode("ascii")
    return {**vars(episode), "trace": trace}


def episode_of(row: Mapping[str, Any]) -> Episode:
    """Return the episode that `row_of` made a row of."""
    return Episode(**{**row, "trace": None if row["trace"] is None else b64decode(row["trace"])})


class Outbox:
    """The end of a process: `send` returns when the pipe has taken the message."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.close = weakref.finalize(self, os.close, descriptor)

    def send(self, kind: str, **content: object) -> None:
        """Send a message; a supervisor that is gone is no error, for then this process will soon be too."""
        data = json.dumps(as_json_value({"kind": kind, **content})).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except BrokenPipeError:
            return

    def __reduce__(self) -> tuple[Callable[..., Outbox], tuple[Any, ...]]:
        """Let the process that is being started have it."""
        return _attach, (DupFd(self._descriptor),)


def _attach(descriptor: Any) -> Outbox:
    return Outbox(descriptor.detach())


class Inbox:
    """The supervisor's end; a line that was not sent to its end when the sender died is no message."""

    def __init__(self) -> None:
        self.descriptor, sending = os.pipe()
        os.set_blocking(self.descriptor, False)
        self.outbox = Outbox(sending)
        self.close = weakref.finalize(self, os.close, self.descriptor)
        self._rest = b""

    def receive(self) -> list[Message]:
        """Return what has come, without waiting."""
        while True:
            try:
                data = os.read(self.descriptor, READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                break
            self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines]
