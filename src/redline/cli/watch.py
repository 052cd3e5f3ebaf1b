"""`redline watch RUN`: the live panel for a run that was started elsewhere; only its files are read."""

import json
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from redline.cli.displays import Lines, LivePanel, framed, render_facts, render_line, render_panel
from redline.cli.event_wording import describe_event, moment
from redline.cli.hardware_facts import hardware_facts
from redline.cli.main import DONE
from redline.cli.parsing import parse, split_run
from redline.cli.wording import duration
from redline.records import Row, plain_text
from redline.runs.locating import FollowedRun, newest_recorded
from redline.runtime.gauges import Gauges

PROGRAM = "redline watch RUN"
LOOK_INTERVAL_S = 0.5
LINE_INTERVAL_S = 5.0
EARLIER_EVENTS_SHOWN = 8


@dataclass(frozen=True)
class WatchFlags:
    """Watch a run, or the newest in a folder of runs, until it ends. It is only read; Ctrl-C leaves it alone."""

    plain: bool = False
    """Plain lines instead of the live panel."""
    json: bool = False
    """Print the newest reading, the newest sample of the hardware and the state as one JSON object, and leave."""


def run(args: Sequence[str]) -> int:
    """Watch as the flags say and return the exit code."""
    if "--help" in args[:1] or "-h" in args[:1]:
        parse(WatchFlags, args, default=WatchFlags(), prog=PROGRAM)
    path, rest = split_run(args, "watch", or_recording=True)
    flags = parse(WatchFlags, rest, default=WatchFlags(), prog=PROGRAM)
    followed = FollowedRun(newest_recorded(path))
    events = followed.refresh()
    if flags.json:
        print(json.dumps(to_json(followed, events), allow_nan=False))
        return DONE
    with suppress(KeyboardInterrupt):
        if flags.plain or not sys.stdout.isatty():
            watch_in_lines(followed, events)
        else:
            watch_in_panel(followed, events)
    return DONE


def to_json(followed: FollowedRun, events: Sequence[Row]) -> dict[str, object]:
    """Return what is newest as one plain object."""
    status = followed.status
    return {
        "schema": 1,
        "run": str(followed.path),
        "kind": "run" if followed.is_run else "recording",
        "state": status.state,
        "how": status.how,
        "unix_s": status.unix_s,
        "reading": followed.metrics,
        "hardware": followed.hardware,
        "pss_bytes": followed.pss_bytes,
        "event": events[-1] if events else None,
    }


def watch_in_panel(followed: FollowedRun, events: Sequence[Row]) -> None:
    """Redraw the panel until the run ends."""
    with LivePanel(title_of(followed)) as panel:
        for row in events[-EARLIER_EVENTS_SHOWN:]:
            panel.note(describe_event(row))
        while True:
            title, reading, facts = title_of(followed), reading_of(followed), facts_of(followed)
            panel.draw(
                framed(title, render_facts([*facts, ("state", state_of(followed))]))
                if reading is None
                else render_panel(title, reading, [*facts, ("state", state_of(followed))])
            )
            if followed.status.state != "running":
                return
            time.sleep(LOOK_INTERVAL_S)
            for row in followed.refresh():
                panel.note(describe_event(row))


def watch_in_lines(followed: FollowedRun, events: Sequence[Row]) -> None:
    """Print a line for each new reading, or sample where there are no readings, until the run ends."""
    with Lines() as lines:
        lines.note(title_of(followed))
        for row in events[-EARLIER_EVENTS_SHOWN:]:
            lines.note(describe_event(row))
        shown, next_s = "", 0.0
        while not lines.is_closed:
            is_over, line = followed.status.state != "running", line_of(followed)
            if line != shown and (is_over or time.monotonic() >= next_s):
                lines.note(line)
                shown, next_s = line, time.monotonic() + LINE_INTERVAL_S
            if is_over:
                lines.note(state_of(followed))
                return
            time.sleep(LOOK_INTERVAL_S)
            for row in followed.refresh():
                lines.note(describe_event(row))


def title_of(followed: FollowedRun) -> str:
    """Return what the panel is headed with."""
    asked = followed.run_json()
    config = asked.get("config")
    env = config.get("env") if isinstance(config, dict) else None
    game = env.get("id") if isinstance(env, dict) else None
    what = f"{asked.get('algorithm')} on {game} · seed {config.get('seed')}" if game else ""  # type: ignore[union-attr]
    return plain_text(" · ".join(part for part in ("redline watch", what, str(followed.path)) if part))


def reading_of(followed: FollowedRun) -> Gauges | None:
    """Return the newest reading; None if there is none yet, or none that can be read."""
    if followed.metrics is not None:
        with suppress(ValueError):
            return Gauges.from_row(followed.metrics)
    return None


def facts_of(followed: FollowedRun) -> list[tuple[str, str]]:
    """Return what the newest sample of the hardware tells."""
    return hardware_facts(
        followed.hardware, pss_bytes=followed.pss_bytes, beside_reading=reading_of(followed) is not None
    )


def line_of(followed: FollowedRun) -> str:
    """Write the newest of both as one line."""
    reading, facts = reading_of(followed), facts_of(followed)
    parts = [*([] if reading is None else [render_line(reading)]), *(f"{name}: {text}" for name, text in facts)]
    return " | ".join(parts)


def state_of(followed: FollowedRun) -> str:
    """Say whether it goes on and when it was last heard of, or how and when it ended."""
    status = followed.status
    if status.unix_s is None:
        when = "nothing was written yet"
    else:
        ago = f"{duration(max(0.0, time.time() - status.unix_s))} ago"
        when = ago if status.state == "running" else f"{moment(status.unix_s)}, {ago}"
    if status.state == "running":
        return f"running, newest row {when}" if status.unix_s is not None else f"running, {when}"
    what = "stopped" if status.state == "stopped" else "killed, last heard of"
    return plain_text(f"{what} {when}: {status.how}" if status.unix_s is not None else f"{status.state}: {status.how}")
