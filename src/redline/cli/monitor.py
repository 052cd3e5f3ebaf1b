"""`redline monitor`: record what a command, or a process that runs already, uses of the machine."""

import json
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from redline.cli.main import DONE, refuse
from redline.cli.parsing import parse
from redline.cli.stopping import StopRequest
from redline.cli.wording import duration, number, size
from redline.errors import UserError
from redline.monitor.commands import Command
from redline.monitor.hardware import HARDWARE
from redline.monitor.process_files import read_stat
from redline.monitor.recording import DEFAULT_HZ, EVENTS, NamedRoles, Recording, check_hz
from redline.monitor.sampling import Sampler
from redline.records import RecordWriter, Row
from redline.runs.errors import explain

NOT_FOUND = "start it as: redline monitor --out DIR -- python train.py"


@dataclass(frozen=True)
class MonitorFlags:
    """Record what the hardware does: of a command that follows after `--`, or of a process that runs already."""

    out: Path | None = None
    """Folder to write hardware.jsonl and events.jsonl to (default: monitor/<date and time>)."""
    pid: int | None = None
    """Process to watch, with all that it started."""
    hz: float = DEFAULT_HZ
    """Samples per second."""
    plain: bool = False
    """Plain text; nothing is drawn anyway."""
    json: bool = False
    """Print what was recorded as one JSON object on stdout; what the command prints there goes to stderr."""

    def __post_init__(self) -> None:
        try:
            check_hz(self.hz)
        except ValueError as error:
            raise UserError(str(error)) from None


def run(args: Sequence[str]) -> int:
    """Record, and return the exit code of the command, or 0 for a process that was only watched."""
    at = list(args).index("--") if "--" in args else len(args)
    command = list(args[at + 1 :])
    flags = parse(MonitorFlags, args[:at], default=MonitorFlags(), prog="redline monitor")
    if bool(command) == (flags.pid is not None):
        problem = "takes a command or --pid, not both" if command else "needs a command or --pid"
        raise UserError(f"monitor {problem}: {NOT_FOUND}")
    out = make_folder(flags.out or Path("monitor") / time.strftime("%Y%m%d-%H%M%S"))
    return record_command(flags, out, command) if command else record_process(flags, out)


def record_command(flags: MonitorFlags, out: Path, words: Sequence[str]) -> int:
    """Run a command and record until it ends."""
    try:
        with Command.start(words, stdout_to_stderr=flags.json) as command:
            recording = open_recording(flags, out, command.pid, is_new=True)
            reason = recording.run(command.wait, command=shlex.join(words))
            code = command.exit_code()
            end = recording.finish(reason, exit_code=code)
    except (FileNotFoundError, PermissionError) as error:
        return refuse(f"{words[0]} can't be run ({error.strerror}): {NOT_FOUND}", as_json=flags.json)
    tell(out, end, as_json=flags.json)
    return code


def record_process(flags: MonitorFlags, out: Path) -> int:
    """Record until the process ends, or Ctrl-C."""
    stat = read_stat(flags.pid or 0)
    if stat is None or stat.has_ended:
        raise UserError(f"there is no process {flags.pid}: ps -e lists those that run")
    with StopRequest() as stop:
        recording = open_recording(flags, out, stat.pid, is_new=False)
        say(f"watching {stat.name} ({stat.pid}); Ctrl-C ends the recording, not the process")
        end = recording.finish(recording.run(partial(wait_for_stop, stop)))
    tell(out, end, as_json=flags.json)
    return DONE


def wait_for_stop(stop: StopRequest, seconds: float) -> str | None:
    """Wait some time, or until a signal asks to stop."""
    end_s = time.monotonic() + seconds
    while stop.reason() is None and (left_s := end_s - time.monotonic()) > 0:
        time.sleep(min(left_s, 0.2))
    return stop.reason()


def make_folder(out: Path) -> Path:
    """Make the folder; one that holds a recording already is refused: two would be mixed."""
    if (out / HARDWARE).exists():
        raise UserError(f"{out} holds a recording already: use another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"out {explain(error, out)}: use another --out") from None
    return out


def open_recording(flags: MonitorFlags, out: Path, pid: int, *, is_new: bool) -> Recording:
    """Return a recording whose events are written beside its samples."""
    sampler = Sampler(pid, folder=out, roles=NamedRoles(None), is_new=is_new)
    try:
        recording = Recording(sampler, out, hz=flags.hz, say=partial(write_event, RecordWriter(out / EVENTS)))
    except OSError as error:
        raise UserError(f"out {explain(error, out)}: use another --out") from None
    say(f"recording into {out} at {flags.hz:g} Hz; look at it with: redline watch {out}")
    return recording


def write_event(events: RecordWriter, row: Row) -> None:
    """Write an event; one that the disk refuses is said instead, for the command must go on."""
    try:
        events.write(row)
    except OSError as error:
        say(f"{row['event']} can't be written: {error.strerror}")
    if "message" in row:
        say(str(row["message"]))


def tell(out: Path, end: Row, *, as_json: bool) -> None:
    """Say what was recorded."""
    if as_json:
        print(json.dumps({"schema": 1, "out": str(out), **end}))
        return
    cores = end["cpu_s"] / max(end["elapsed_s"], 1e-9)
    say(
        f"{end['reason']} after {duration(end['elapsed_s'])}: {number(cores)} cores used on average, "
        f"at most {size(end['peak_rss_bytes'])} of memory, {end['samples']:,} samples; "
        f"the monitor itself took {end['monitor_cpu_share']:.2%} of the machine's CPU time"
    )
    say(f"look at it with: redline report {out} --out report.html")


def say(text: str) -> None:
    """Print beside what the command prints."""
    print(f"redline monitor: {text}", file=sys.stderr, flush=True)
