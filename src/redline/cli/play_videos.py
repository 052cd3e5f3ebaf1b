"""`redline play RUN --videos …`: videos of the episodes that tell how a run went, each made once."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from redline.cli.main import DONE
from redline.cli.play_rendering import (
    VIDEOS,
    Look,
    Showing,
    default_target,
    make_folder,
    render,
    video_facts,
    video_name,
)
from redline.cli.stopping import StopRequest
from redline.cli.tables import progress_bar
from redline.cli.wording import number, size
from redline.errors import UserError
from redline.recordings.library import BEST, POLICY, Listed, list_episodes, open_library, select
from redline.recordings.replaying import RequestedStop, StoppedWhilePlayingError
from redline.recordings.video import find_encoder
from redline.records import measured, read_records
from redline.runs.errors import explain

GREEDY = "greedy"
EVENTS = "events.jsonl"


@dataclass(frozen=True)
class Wanted:
    """An episode that is worth a video, and why."""

    one: Listed
    name: str  # of the file begins with it
    why: str


def best_so_far(_: Path, listed: Sequence[Listed]) -> list[Wanted]:
    """Return the recorded episodes that beat all before them, recorded or not."""
    wanted: list[Wanted] = []
    best: float | None = None
    for one in listed:
        if one.role == POLICY or (best is not None and one.total_reward <= best):
            continue
        best = one.total_reward
        if one.entry is not None:
            wanted.append(Wanted(one, "best", "the best so far"))
    if not wanted:
        raise UserError(_nothing(listed))
    return wanted


def newest_at_checkpoints(run: Path, listed: Sequence[Listed]) -> list[Wanted]:
    """Return for every checkpoint the last greedy episode since the one before, else the last episode by then."""
    recorded = sorted(
        (one for one in listed if one.entry is not None and one.role != POLICY), key=lambda one: one.steps
    )
    if not recorded:
        raise UserError(_nothing(listed))
    steps = checkpoint_steps(run)
    if not steps:
        raise UserError(f"{run} has told of no checkpoint yet: use --videos best, or --episode last")
    wanted: list[Wanted] = []
    before = -1
    for at in steps:
        known = [one for one in recorded if one.steps <= at]
        greedy = [one for one in known if one.role == GREEDY and one.steps > before]
        chosen = (greedy or known)[-1:]
        wanted += [Wanted(one, f"checkpoint{at}", f"at checkpoint {at:,}") for one in chosen]
        before = at
    if not wanted:
        raise UserError(f"no recorded episode had ended by the last checkpoint, at step {steps[-1]:,}: train on")
    return wanted


def checkpoint_steps(run: Path) -> list[int]:
    """Return the steps of all checkpoints that a run tells of; anybody may have written what is read."""
    path = run / EVENTS
    if not path.is_file():
        return []
    try:
        rows = read_records(path)
    except OSError as error:
        raise UserError(f"the events can't be read: {explain(error, path)}") from None
    told = (measured(row.get("steps")) for row in rows if row.get("event") == "checkpoint")
    return sorted({int(steps) for steps in told if steps is not None and steps >= 0})


def _nothing(listed: Sequence[Listed]) -> str:
    if not listed:
        return "no episode has ended yet: train on"
    return f"of {len(listed):,} episodes none that counts here is recorded: train with --record all or --record best"


def video_of_best(run: Path, *, plain: bool, requested_stop: RequestedStop) -> Path:
    """Make a video of the best recorded episode of a run, and return where it is; UserError where none can be made."""
    try:
        library = open_library(run)
        best = select(list_episodes(run, library), BEST)
        showing = Showing(run, library, Look(overlay=False, scale=None))
        path = default_target(run, [best], showing.look)
        if not path.exists():
            with progress_bar("video of the best episode", plain=plain) as progress:
                render(showing, [best], out=path, sheet=None, progress=progress, requested_stop=requested_stop)
    except (OSError, ValueError, StoppedWhilePlayingError) as error:  # a damaged recording is a ValueError
        raise UserError(str(error)) from error
    return path


def make_videos(showing: Showing, wanted: Sequence[Wanted], *, kind: str, plain: bool, as_json: bool) -> int:
    """Make those that are not there yet."""
    find_encoder()
    folder = showing.run / VIDEOS
    make_folder(folder)
    made: list[dict[str, object]] = []
    num_there = 0
    with StopRequest() as stop:
        for count, one in enumerate(wanted, start=1):
            path = folder / f"{one.name}_{video_name(one.one, showing.look)}.mp4"
            is_there = path.exists()
            facts: dict[str, object] = {"path": str(path)}
            if is_there:
                num_there += 1
            else:
                with progress_bar(f"video {count} of {len(wanted)}", plain=plain) as progress:
                    rendered = render(
                        showing, [one.one], out=path, sheet=None, progress=progress, requested_stop=stop.reason
                    )
                if rendered.video is not None:
                    facts = video_facts(rendered.video)
            made.append(
                {
                    "id": one.one.id,
                    "role": one.one.role,
                    "steps": one.one.steps,
                    "return": one.one.total_reward,
                    "why": one.why,
                    "made": not is_there,
                    **facts,
                }
            )
            if not as_json:
                state = "is there already" if is_there else size(path.stat().st_size)
                print(f"{one.why}: episode {one.one.id}, return {number(one.one.total_reward)}: {path} ({state})")
    if as_json:
        print(json.dumps({"schema": 1, "run": str(showing.run), "kind": kind, "videos": made}))
    else:
        num_made = len(made) - num_there
        print(f"{num_made} video{'s' * (num_made != 1)} made, {num_there} {'was' if num_there == 1 else 'were'} there")
    return DONE
