"""The command line: one small module per command, and the only room that prints."""

import os
import signal
import sys
from contextlib import suppress

TRAINING = ("train", "resume", "tune", "fleet")  # commands that can be stopped and resumed
exit_code: int | None = None  # of the command, when it is over
is_object_out = False  # that of --json: what ends the command later adds no other
interrupted_s = float("-inf")  # when Ctrl-C or another signal last interrupted this command


def start() -> int:
    """Run the program: until a command takes signals itself, one of them ends it with a line and no traceback."""
    take_signals()
    from redline.cli.main import main

    return main()


def take_signals() -> None:
    """Let Ctrl-C, and SIGTERM and SIGHUP where a run could be resumed, end the process at once."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if sys.argv[1:2] and sys.argv[1] in TRAINING else ()
    for number in numbers or (signal.SIGINT,):
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _end)


def leave_with(code: int) -> None:
    """Let the process end with a code after the exit hooks, or in them by a signal: the command is over.

    What Python does after them takes up to seconds, and any signal would kill it there.
    """
    global exit_code  # noqa: PLW0603
    exit_code = code
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if callable(signal.getsignal(number)):  # neither ignored nor left to the system
            signal.signal(number, lambda *_: os._exit(code))


def leave() -> None:
    """End the process if the command is over; registered before the hooks of others, so called after them."""
    if exit_code is not None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):
                stream.flush()
        os._exit(exit_code)


def _end(number: int, _: object) -> None:
    said = "interrupted" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}"
    typed = sys.argv[: sys.argv.index("--")] if "--" in sys.argv else sys.argv
    with suppress(OSError):  # either stream may be closed
        os.write(2, f"redline: {said}\n".encode())
        if "--json" in typed and not is_object_out:  # `main`, which does this elsewhere, may not be loaded
            os.write(1, f'{{"schema": 1, "error": "{said}"}}\n'.encode())
    os._exit(1 if number == signal.SIGINT else 75)
