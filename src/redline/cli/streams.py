"""Stdout and stderr that no full disk, closed terminal or ASCII locale can turn into the end of a training."""

import io
import os
import sys
from typing import TextIO, cast


class LossyFile(io.RawIOBase):
    """Writes to a descriptor; what can't be written is dropped and remembered. A reader that is gone still raises."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.error: OSError | None = None  # the first one

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """Write all of it, or drop the rest."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BrokenPipeError:
                raise
            except OSError as error:
                self.error = self.error or error
                break
        return len(data)

    def writable(self) -> bool:
        """It can be written to."""
        return True

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Tell whether it is a terminal."""
        return os.isatty(self._descriptor)


def guard_streams() -> None:
    """Let sys.stdout and sys.stderr drop what can't be written; where one is closed, write to nowhere."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # the next file that is opened would get this number, and be printed into
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
    sys.stdout = _guarded(sys.stdout, 1)
    sys.stderr = _guarded(sys.stderr, 2)


def output_error() -> OSError | None:
    """Return the first error of writing to stdout or stderr."""
    for stream in (sys.stdout, sys.stderr):
        raw = getattr(stream, "buffer", None)
        if isinstance(raw, LossyFile) and raw.error is not None:
            return raw.error
    return None


def _guarded(stream: TextIO | None, number: int) -> TextIO:
    if stream is not None and (not isinstance(stream, io.TextIOWrapper) or isinstance(stream.buffer, LossyFile)):
        return stream  # somebody's own, as in tests, or guarded already
    encoding = "utf-8" if stream is None else stream.encoding
    raw = cast("io.BufferedWriter", LossyFile(number))
    return io.TextIOWrapper(raw, encoding=encoding, errors="replace", write_through=True)
