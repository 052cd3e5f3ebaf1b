"""Events of a run as lines that people read."""

import time
from collections.abc import Callable, Mapping

from redline.cli.wording import duration
from redline.records import Row, plain_text, tamed

COMMON = ("schema", "event", "unix_s", "time_s", "steps")
NOT_SHOWN = ("trace",)


def moment(unix_s: object) -> str:
    """Return a moment as date and time here."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(unix_s)))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, OSError):
        return "at an unknown time"


def describe_event(row: Row) -> str:
    """Say in one line what happened, and when."""
    row = tamed(row)
    words = WORDS.get(str(row.get("event")))
    try:
        text = words(row) if words else _all_fields(row)
    except (ArithmeticError, LookupError, TypeError, ValueError):  # of another version, or damaged
        text = _all_fields(row)
    return plain_text(f"{moment(row.get('unix_s'))}  {text}")


def _all_fields(row: Row) -> str:
    rest = ", ".join(f"{key} {value}" for key, value in row.items() if key not in (*COMMON, *NOT_SHOWN))
    return f"{row.get('event')}: {rest}" if rest else str(row.get("event"))


def _evaluation(row: Row) -> str:
    how = f" ({row['how']})" if row.get("how") else ""
    return (
        f"evaluation {row['number']}{how} with the weights of step {row['weights_steps']:,}: mean "
        f"{row['mean_return']:.2f}, min {row['min_return']:g}, max {row['max_return']:g} of {row['episodes']} episodes"
    )


def _monitor_stop(row: Row) -> str:
    share = f"{row['monitor_cpu_share']:.2%} of the machine"
    return f"monitor stopped: {row['reason']}; {row['samples']:,} samples in {duration(row['elapsed_s'])}, took {share}"


WORDS: Mapping[str, Callable[[Row], str]] = {
    "start": lambda row: f"started: {row['protocol']}",
    "process": lambda row: f"{row['role']} is process {row['pid']}",
    "process-lost": lambda row: f"{row['role']} (pid {row['pid']}) {row['why']}",
    "evaluation": _evaluation,
    "solved": lambda row: f"solved after {row['elapsed_s'] / 60:.1f} minutes: mean {row['mean_return']:.2f}",
    "checkpoint": lambda row: f"checkpoint {row['path']}, training waited {row['stalled_s']:.2f} s",
    "resume": lambda row: f"resumed from checkpoint {row['checkpoint']}",
    "warning": lambda row: f"warning: {row['message']}",
    "adjustment": lambda row: f"requested → effective: {row['message']}",
    "error": lambda row: f"error: {row['message']}",
    "stop": lambda row: f"stopped: {row['reason']}",
    "monitor-start": lambda row: f"monitor started on process {row['pid']}, {row['hz']:g} samples/s",
    "monitor-warning": lambda row: f"warning of the monitor: {row['message']}",
    "monitor-stop": _monitor_stop,
    "gpu-lost": lambda row: f"GPU {row['gpu']} was lost: {row['message']}",
    "gpu-back": lambda row: f"GPU {row['gpu']} is back: {row['message']}",
    "gpu-warning": lambda row: f"warning of GPU {row['gpu']}: {row['message']}",
}
