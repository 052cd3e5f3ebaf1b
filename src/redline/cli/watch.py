"""`redline watch RUN`: the live panel for a run that was started elsewhere; only its files are read."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from redline.cli.displays import (
    Fact,
    Lines,
    LivePanel,
    framed,
    in_words,
    join_facts,
    known,
    known_size,
    open_display,
    render_line,
    render_panel,
)
from redline.cli.main import DONE
from redline.cli.output import draw_facts, print_json
from redline.cli.parsing import Run, parse
from redline.jsonl import Row, plain_text, tamed
from redline.monitor.hardware import flat
from redline.runs.locating import FollowedRun, locate_run, newest_recorded
from redline.runtime.gauges import Gauges
from redline.units import duration, energy

LOOK_INTERVAL_S = 0.5
EARLIER_EVENTS_SHOWN = 8
MOST_CORES_SHOWN, MOST_ROLES_SHOWN = 16, 8
IN_READING = (
    "load_average_1m",
    "memory_available_bytes",
    "disk_free_bytes",
    "cpu_power_w",
    "machine_energy_j",
)  # a reading shows these too
NOT_SHOWN = ("schema", "event", "unix_s", "time_s", "steps", "trace")  # of an event without words of its own


@dataclass(frozen=True)
class WatchFlags:
    """Watch a run, or the newest in a folder of runs, until it ends. Ctrl-C ends the watching, not the run."""

    run: Run
    plain: bool = False
    """Plain lines instead of the live panel."""
    json: bool = False
    """Print the newest reading, the newest hardware sample and the state as one JSON object, and leave."""


def run(args: Sequence[str]) -> int:
    flags = parse(WatchFlags, args, prog="redline watch")
    followed = FollowedRun(newest_recorded(locate_run(flags.run, or_recording=True)))
    events = followed.refresh()
    if flags.json:
        print_json(to_json(followed, events))
        return DONE
    title = title_of(followed)
    with suppress(KeyboardInterrupt), open_display(title, flags) as display:
        if isinstance(display, Lines):
            display.note(title)
        watch(followed, events, display)
    return DONE


def to_json(followed: FollowedRun, events: Sequence[Row]) -> dict[str, object]:
    status = followed.status
    return {
        "run": followed.path,
        "kind": "run" if followed.is_run else "recording",
        "state": status.state,
        "how": status.how,
        "unix_s": status.unix_s,
        "reading": followed.metrics,
        "hardware": followed.hardware,
        "pss_bytes": followed.pss_bytes,
        "event": events[-1] if events else None,
    }


def watch(followed: FollowedRun, events: Sequence[Row], display: LivePanel | Lines) -> None:
    """Show a run until it ends: redraw the panel, or print a line every few seconds."""
    new_events = events[-EARLIER_EVENTS_SHOWN:]
    while not display.is_closed:
        for row in new_events:
            display.note(describe_event(row))
        is_over = followed.status.state != "running"
        if isinstance(display, LivePanel):
            display.draw(panel_of(followed))
        else:
            display.show_line(line_of(followed), is_last=is_over)
        if is_over:
            break
        time.sleep(LOOK_INTERVAL_S)
        new_events = followed.refresh()
    if isinstance(display, Lines):
        display.note(state_of(followed))


def panel_of(followed: FollowedRun) -> RenderableType:
    """Draw the newest reading, the hardware and the state of a run."""
    title, reading = title_of(followed), reading_of(followed)
    facts = [*facts_of(followed), ("state", state_of(followed))]
    return framed(title, draw_facts(facts)) if reading is None else render_panel(title, reading, facts)


def title_of(followed: FollowedRun) -> str:
    asked = followed.run_json()
    config = asked.get("config")
    env = config.get("env") if isinstance(config, dict) else None
    game = env.get("id") if isinstance(env, dict) else None
    what = f"{asked.get('algorithm')} on {game} · seed {config.get('seed')}" if game else ""  # type: ignore[union-attr]
    return plain_text(" · ".join(part for part in ("redline watch", what, str(followed.path)) if part))


def reading_of(followed: FollowedRun) -> Gauges | None:
    """Return the newest reading; None if there is none yet, or it is damaged."""
    if followed.metrics is not None:
        with suppress(ValueError):
            return Gauges.from_row(followed.metrics)
    return None


def facts_of(followed: FollowedRun) -> list[Fact]:
    has_reading = reading_of(followed) is not None
    return hardware_facts(followed.hardware, pss_bytes=followed.pss_bytes, beside_reading=has_reading)


def line_of(followed: FollowedRun) -> str:
    """Write the newest reading and hardware sample as one line."""
    reading = reading_of(followed)
    return join_facts([*([] if reading is None else [("", render_line(reading))]), *facts_of(followed)])


def state_of(followed: FollowedRun) -> str:
    """Tell whether the run goes on and when it last wrote, or how and when it ended."""
    status = followed.status
    if status.unix_s is None:
        is_running = status.state == "running"
        return "running, nothing was written yet" if is_running else plain_text(f"{status.state}: {status.how}")
    ago = f"{duration(max(0.0, time.time() - status.unix_s))} ago"
    if status.state == "running":
        return f"running, newest row {ago}"
    what = "stopped" if status.state == "stopped" else "killed, last heard of"
    return plain_text(f"{what} {moment(status.unix_s)}, {ago}: {status.how}")


# what the hardware does


def hardware_facts(row: Row | None, *, pss_bytes: float | None, beside_reading: bool) -> list[Fact]:
    """Return a fact for cores, memory, disk and each GPU; `beside_reading` leaves out what a reading shows too."""
    if row is None:
        return []
    numbers = flat(row)
    for name in IN_READING if beside_reading else ():
        numbers.pop(name, None)
    facts = {
        "cores": _cores(numbers, "this run" if beside_reading else "watched processes"),
        "memory": _memory(numbers, pss_bytes),
        "disk": _disk(numbers),
        "energy": _energy(numbers),
        **({} if beside_reading else _roles(row, numbers)),
        **_gpus(row, numbers),
    }
    return [(name, " · ".join(parts)) for name, parts in facts.items() if parts]


def _cores(numbers: Mapping[str, float], whose: str) -> list[str]:
    busy = [share for name, share in numbers.items() if name.startswith("core_busy.")]
    of = f" of {len(busy)} cores" if busy else ""
    each = None
    if busy:
        few = len(busy) <= MOST_CORES_SHOWN
        each = " ".join(f"{share:.0%}" for share in busy) if few else f"{min(busy):.0%} to {max(busy):.0%}"
    return known(
        (f"{whose} {{:.2f}}{of}", numbers.get("cpu_cores_used")),
        ("all processes {:.2f}", numbers.get("machine_cpu_cores_used")),
        ("each {}", each),
        ("load {:.1f}", numbers.get("load_average_1m")),
    )


def _memory(numbers: Mapping[str, float], pss_bytes: float | None) -> list[str]:
    return known(
        ("{} resident", known_size(numbers.get("rss_bytes"))),
        ("{} PSS", known_size(pss_bytes)),
        ("{} shared", known_size(numbers.get("shared_bytes"))),
        ("{} available", known_size(numbers.get("memory_available_bytes"))),
        ("{} in /dev/shm", known_size(numbers.get("shm_used_bytes"))),
    )


def _disk(numbers: Mapping[str, float]) -> list[str]:
    return known(
        ("{}/s read", known_size(numbers.get("read_bytes_per_s"))),
        ("{}/s written", known_size(numbers.get("write_bytes_per_s"))),
        ("{} free", known_size(numbers.get("disk_free_bytes"))),
    )


def _energy(numbers: Mapping[str, float]) -> list[str]:
    return known(
        ("processors {:.0f} W", numbers.get("cpu_power_w")),
        ("{} with GPUs so far", in_words(energy, numbers.get("machine_energy_j"))),
    )


def _roles(row: Row, numbers: Mapping[str, float]) -> dict[str, list[str]]:
    """Return one fact for each role if there are several."""
    roles = row.get("roles")
    if not isinstance(roles, dict) or len(roles) < 2:
        return {}
    return {
        plain_text(role): known(
            ("{:.2f} cores", numbers.get(f"roles.{role}.cpu_cores_used")),
            ("{}", known_size(numbers.get(f"roles.{role}.rss_bytes"))),
        )
        for role in list(roles)[:MOST_ROLES_SHOWN]
    }


def _gpus(row: Row, numbers: Mapping[str, float]) -> dict[str, list[str]]:
    gpus = row.get("gpus")
    found = [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    places = [gpu.get("index", place) for place, gpu in enumerate(found)]
    return {plain_text(f"GPU {at}"): _gpu(gpu, f"gpus.{at}.", numbers) for at, gpu in zip(places, found, strict=True)}


def _gpu(gpu: Mapping[str, Any], prefix: str, numbers: Mapping[str, float]) -> list[str]:
    values = {name.removeprefix(prefix): value for name, value in numbers.items() if name.startswith(prefix)}
    total, reasons = known_size(values.get("memory_total_bytes")), gpu.get("throttle_reasons")
    slowed = ", ".join(map(str, reasons)) if isinstance(reasons, list) and reasons else None
    return known(
        ("{}", plain_text(gpu["name"]) if gpu.get("name") else None),
        ("{:.0f} % busy", values.get("utilisation_percent")),
        ("{:.0f} W", values.get("power_w")),
        ("{:.0f} °C", values.get("temperature_c")),
        ("{:.0f} MHz", values.get("clock_sm_mhz")),
        ("{}" if total is None else f"{{}} of {total}", known_size(values.get("memory_used_bytes"))),
        ("slowed by {}", None if slowed is None else plain_text(slowed)),
    )


# what happened


def moment(unix_s: object) -> str:
    """Return a moment as local date and time."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(unix_s)))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, OSError):
        return "at an unknown time"


def describe_event(row: Row) -> str:
    """Tell in one line what happened, and when."""
    row = tamed(row)
    words = WORDS.get(str(row.get("event")))
    try:
        text = words(row) if words else _all_fields(row)
    except (ArithmeticError, LookupError, TypeError, ValueError):  # of another version, or damaged
        text = _all_fields(row)
    return plain_text(f"{moment(row.get('unix_s'))}  {text}")


def _all_fields(row: Row) -> str:
    rest = ", ".join(f"{key} {value}" for key, value in row.items() if key not in NOT_SHOWN)
    return f"{row.get('event')}: {rest}" if rest else str(row.get("event"))


def _evaluation(row: Row) -> str:
    how = f" ({row['how']})" if row.get("how") else ""
    return (
        f"evaluation {row['number']}{how} with the weights of step {row['weights_steps']:,}: mean "
        f"{row['mean_return']:.2f}, min {row['min_return']:g}, max {row['max_return']:g} of {row['episodes']} episodes"
    )


def _monitor_stop(row: Row) -> str:
    share = f"{row['monitor_cpu_share']:.2%} of the machine"
    return f"monitor stopped: {row['reason']}; {row['samples']:,} samples in {duration(row['elapsed_s'])}, used {share}"


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
    "monitor-warning": lambda row: f"monitor: warning: {row['message']}",
    "monitor-stop": _monitor_stop,
    "gpu-lost": lambda row: f"GPU {row['gpu']} was lost: {row['message']}",
    "gpu-back": lambda row: f"GPU {row['gpu']} is back: {row['message']}",
    "gpu-warning": lambda row: f"GPU {row['gpu']}: warning: {row['message']}",
}
