"""`redline monitor`: record what a command, or a running process, uses of the machine."""

import ctypes
import os
import select
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from redline.cli.main import DONE
from redline.cli.output import print_json
from redline.cli.parsing import Plain, parse
from redline.cli.process import StopRequest
from redline.errors import UserError
from redline.files import explained, make_folder
from redline.jsonl import RecordWriter, Row
from redline.monitor.attaching import new_folder
from redline.monitor.hardware import HARDWARE
from redline.monitor.processes import read_stat
from redline.monitor.sampling import DEFAULT_HZ, EVENTS, TARGET_ENDED, HardwareRecorder, check_hz
from redline.units import duration, number, size

HOW_TO_START = "start it as: redline monitor --out DIR -- python train.py"
SIGNALS = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD}
)
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
PR_SET_CHILD_SUBREAPER = 36
COMMAND_ENDED = "the command ended"
KILLED_BY_SIGNAL = 128  # a shell adds the signal's number


@dataclass(frozen=True)
class MonitorFlags:
    """Record what a command (typed after `--`) or a running process (--pid) uses of the hardware."""

    out: Path | None = None
    """Folder for hardware.jsonl and events.jsonl. By default monitor/<date and time>."""
    pid: int | None = None
    """Process to watch, with all its children."""
    hz: float = DEFAULT_HZ
    """Samples per second."""
    plain: Plain = False
    json: bool = False
    """Print a summary as one JSON object on stdout; what the command prints there goes to stderr."""

    def __post_init__(self) -> None:
        try:
            check_hz(self.hz)
        except ValueError as error:
            raise UserError(str(error)) from None


def run(args: Sequence[str]) -> int:
    """Record, and return the exit code of the command, or 0 for a watched process."""
    at = list(args).index("--") if "--" in args else len(args)
    command = list(args[at + 1 :])
    flags = parse(MonitorFlags, args[:at], prog="redline monitor")
    if command[:1] == [""]:
        raise UserError(f"the command to monitor has no name: {HOW_TO_START}")
    if bool(command) == (flags.pid is not None):
        problem = "takes a command or --pid, not both" if command else "needs a command or --pid"
        raise UserError(f"monitor {problem}: {HOW_TO_START}")
    return record_command(flags, command) if command else record_process(flags)


def record_command(flags: MonitorFlags, words: Sequence[str]) -> int:
    """Run a command and record until it ends; return its exit code even if the recording fails."""
    out, events = open_files(flags.out)
    try:
        command = Command(words, stdout_to_stderr=flags.json)
    except OSError as error:
        remove_files(out)
        raise UserError(f"{words[0]} can't be run ({error.strerror}): {HOW_TO_START}") from error
    with command:
        try:
            recording = open_recording(flags, out, command.pid, events, is_new=True)
            reason = recording.run(command.wait, command=shlex.join(words))
            code = command.exit_code()
            end = recording.finish(reason, exit_code=code)
        except Exception as error:
            say(f"the recording failed ({type(error).__name__}: {error}); the command continues")
            code = command.exit_code()
            end = {"error": str(error), "exit_code": code}
    tell(out, end, as_json=flags.json)
    return code


def record_process(flags: MonitorFlags) -> int:
    """Record until the process ends, or Ctrl-C."""
    stat = read_stat(flags.pid or 0)
    if stat is None or stat.has_ended:
        raise UserError(f"there is no process {flags.pid}: ps -e lists those that run")
    out, events = open_files(flags.out)
    with StopRequest() as stop:
        recording = open_recording(flags, out, stat.pid, events, is_new=False)
        say(f"watching {stat.name} ({stat.pid}); Ctrl-C ends the recording, not the process")
        end = recording.finish(recording.run(partial(wait_for_stop, stop, recording.end_descriptors)))
    tell(out, end, as_json=flags.json)
    return DONE


def wait_for_stop(stop: StopRequest, end_descriptors: Sequence[int], seconds: float) -> str | None:
    """Wait for some seconds, or until a signal comes or the process ends."""
    end_s = time.monotonic() + seconds
    while stop.reason() is None and (left_s := end_s - time.monotonic()) > 0:
        ended, _, _ = select.select(end_descriptors, [], [], min(left_s, 0.2))
        if ended:
            return TARGET_ENDED
    return stop.reason()


def open_files(out: Path | None) -> tuple[Path, RecordWriter]:
    """Make the folder and the files of a recording before anything runs; return the folder and the file of events."""
    out = new_folder() if out is None else out
    if (out / HARDWARE).exists():  # two recordings would mix
        raise UserError(f"{out} holds a recording already: use another --out")
    with explained(UserError, out, before="out ", after=": use another --out"):
        make_folder(out, mode=0o700)
        RecordWriter(out / HARDWARE).close()
        return out, RecordWriter(out / EVENTS)


def remove_files(out: Path) -> None:
    """Remove the empty files of a recording that never began."""
    for path in (out / HARDWARE, out / EVENTS):
        if path.stat().st_size == 0:
            path.unlink()
    with suppress(OSError):  # the folder holds something else
        out.rmdir()
        if out.parent == Path("monitor"):  # ours, unless other recordings are in it
            out.parent.rmdir()


def open_recording(flags: MonitorFlags, out: Path, pid: int, events: RecordWriter, *, is_new: bool) -> HardwareRecorder:
    """Return a recording whose events are written beside its samples."""
    recording = HardwareRecorder(pid, out, hz=flags.hz, say=partial(write_event, events), is_new=is_new)
    say(f"recording into {out} at {flags.hz:g} Hz; watch it with: redline watch {out}")
    return recording


def write_event(events: RecordWriter, row: Row) -> None:
    """Write an event; if the disk refuses it, only say so: the command must continue."""
    try:
        events.write(row)
    except OSError as error:
        say(f"{row['event']} can't be written: {error.strerror}")
    if "message" in row:
        say(str(row["message"]))


def tell(out: Path, end: Row, *, as_json: bool) -> None:
    if as_json:
        print_json({"out": out, **end})
        return
    if "error" in end:
        return
    cores = end["cpu_s"] / max(end["elapsed_s"], 1e-9)
    peak = f"at most {size(end['peak_rss_bytes'])} of memory, " if "peak_rss_bytes" in end else ""
    say(
        f"{end['reason']} after {duration(end['elapsed_s'])}: {number(cores)} cores used on average, {peak}"
        f"{end['samples']:,} samples; the monitor itself took {end['monitor_cpu_share']:.2%} of the machine's CPU time"
    )
    say(f"see the charts with: redline report {out} --out report.html")


def say(text: str) -> None:
    """Print on stderr; if nobody reads it, the command continues all the same."""
    if sys.stderr is None:
        return
    try:
        print(f"redline monitor: {text}", file=sys.stderr, flush=True)
    except OSError:
        # Python flushes at exit: that has to go somewhere, or it would change our exit code
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


class Command(AbstractContextManager["Command"]):
    """A process in the terminal's foreground, like this one. Signals are blocked until `wait` takes them."""

    def __init__(self, words: Sequence[str], *, stdout_to_stderr: bool = False) -> None:
        """Start it, or raise OSError."""
        # orphans become our children instead of init's: they belong to the command
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            # unlike a fork with Python code before exec, this can restore the signal mask in the child
            self.pid = os.posix_spawnp(
                words[0],
                list(words),
                os.environ,
                setsigmask=self._mask_before,
                setsigdef=IGNORED_BY_PYTHON,
                file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)] if stdout_to_stderr else [],
            )
        except BaseException:
            self._unblock()
            raise

    def __exit__(self, *_: object) -> None:
        while signal.sigtimedwait(SIGNALS, 0) is not None:  # meant for the command, which has ended
            pass
        self._unblock()

    def _unblock(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)

    def wait(self, seconds: float) -> str | None:
        """Wait for a signal or a timeout, and pass the signal on; return a reason once the command has ended."""
        found = signal.sigtimedwait(SIGNALS, seconds)
        if found is None:
            return None
        if found.si_signo == signal.SIGCHLD:
            return COMMAND_ENDED if self._has_ended() else None
        # the terminal (the kernel) sends to all processes in its foreground: the command has got it already
        if found.si_code <= 0:
            with suppress(OSError):  # it is gone, or belongs to another user now
                os.kill(self.pid, found.si_signo)
        return None

    def _has_ended(self) -> bool:
        """Tell whether it has ended, leaving its last counters in /proc; reap inherited processes."""
        with suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if found.si_pid == self.pid:
                    return True
                os.waitpid(found.si_pid, 0)
        return False

    def exit_code(self) -> int:
        """Wait for the end and return the exit code; after a signal, the code that a shell gives."""
        while not self._has_ended():
            self.wait(60.0)
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else KILLED_BY_SIGNAL - code
