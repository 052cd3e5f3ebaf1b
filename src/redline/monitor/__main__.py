"""The monitor process, started by `record` or as `python -m redline.monitor`.

It ends when the watched process ends, on SIGTERM, or when its starter writes a line to its stdin or closes it. It
prints events as JSON lines, and writes them to events.jsonl unless a run writes its own.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from redline.jsonl import RecordWriter, Row, encode_row
from redline.monitor.sampling import EVENTS, TARGET_ENDED, HardwareRecorder


def main(argv: Sequence[str] | None = None) -> int:
    """Record until it is time to stop."""
    options = parse(argv)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the watched process; when it ends, so does the monitor
    terminated, terminate = os.pipe()  # a handler alone would not wake select
    signal.signal(signal.SIGTERM, lambda *_: os.write(terminate, b"."))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # the starter may have blocked it
    os.set_blocking(sys.stdout.fileno(), False)  # the starter may not read
    writer = None if options.run else RecordWriter(options.out / EVENTS)
    recording = HardwareRecorder(options.pid, options.out, hz=options.hz, say=partial(_say, writer))
    reasons = {sys.stdin.fileno(): "closed", terminated: "SIGTERM"}
    reasons |= dict.fromkeys(recording.end_descriptors, TARGET_ENDED)

    def wait(seconds: float) -> str | None:
        """Wait until a descriptor is readable or closed, and return its reason."""
        readable, _, _ = select.select(list(reasons), [], [], seconds)
        return reasons[readable[0]] if readable else None

    recording.finish(recording.run(wait))
    return 0


def _say(writer: RecordWriter | None, row: Row) -> None:
    with suppress(OSError):  # a full pipe or a full disk must not end the recording
        os.write(sys.stdout.fileno(), encode_row(row))
    if writer is not None:
        with suppress(OSError):
            writer.write(row)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = ArgumentParser(prog="python -m redline.monitor", description=__doc__)
    parser.add_argument("--pid", type=int, required=True, help="process to watch, with its children")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--hz", type=float, required=True, help="samples per second")
    parser.add_argument("--run", action="store_true", help="the folder is a run, whose events name its processes")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
