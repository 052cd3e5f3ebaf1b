"""Episodes → videos and contact sheets: one episode, several side by side, or all that tell how a run went."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from redline.cli.output import Printing, give, is_plain, progress_bar, write_sheet
from redline.cli.process import StopRequest
from redline.episodes.library import BEST, POLICY, Entry, Library, Listed, list_episodes, open_library, select
from redline.episodes.overlay import (
    TARGET_HEIGHT,
    TARGET_TILE_HEIGHT,
    About,
    Drawer,
    Overlay,
    about_episode,
    enlarged,
    iterate_grid,
    signed,
)
from redline.episodes.replaying import RequestedStop, StoppedWhilePlayingError, iterate_pictures, pictures_per_s
from redline.episodes.sheet import Collected, draw_sheet, evenly_spaced
from redline.episodes.video import check_target, find_encoder, write_video
from redline.errors import UserError
from redline.files import explained, make_own_folder
from redline.jsonl import measured, plain_text, read_records
from redline.types import Array, Progress
from redline.units import number, size

VIDEOS = "videos"  # folder in a run
EVENTS = "events.jsonl"
GREEDY = "greedy"


@dataclass(frozen=True)
class Showing:
    """Where the episodes come from, and how they are shown."""

    run: Path
    library: Library
    overlay: bool = False
    scale: int | None = None

    @property
    def suffix(self) -> str:
        """The part of a file's name that tells how it is shown."""
        return f"{'_overlay' * self.overlay}{'' if self.scale is None else f'_x{self.scale}'}"

    def about(self, one: Listed) -> About:
        return about_episode(self.library, entry_of(one), name=f"episode {one.id}")


def entry_of(one: Listed) -> Entry:
    """Return the recording of an episode that has one."""
    if one.entry is None:
        raise UserError(f"episode {one.id} is not recorded")
    return one.entry


def default_target(showing: Showing, chosen: Sequence[Listed]) -> Path:
    """Return the path of a video without a name of its own; make its folder if needed."""
    ids = "_".join(one.id for one in chosen)
    name = video_name(chosen[0], showing) if len(chosen) == 1 else f"grid_{ids}{showing.suffix}"
    target = showing.run / VIDEOS / f"{name}.mp4"
    make_folder(target.parent)
    check_target(target)
    return target


def make_folder(folder: Path) -> None:
    """Make the folder of a run's videos, if they can be encoded at all."""
    find_encoder()
    with explained(UserError, folder, before="cannot make ", after=": use --out with another place"):
        make_own_folder(folder)


def video_name(one: Listed, showing: Showing) -> str:
    """Return the name of a file after its episode."""
    return f"step{one.steps}_return{one.total_reward:.10g}_episode{one.id}{showing.suffix}"


def render(
    showing: Showing,
    chosen: Sequence[Listed],
    *,
    out: Path | None,
    sheet: Path | None,
    progress: Progress,
    requested_stop: RequestedStop,
) -> dict[str, Any]:
    """Play the episodes again, write the files that are asked for, and return what they are."""
    entries = [entry_of(one) for one in chosen]
    # they play side by side: the longest shows the progress of all
    longest = max(entries, key=lambda entry: entry.header.end_steps)
    films = [
        iterate_pictures(
            showing.library,
            entry,
            progress=progress if entry is longest else lambda _: None,
            requested_stop=requested_stop,
        )
        for entry in entries
    ]
    abouts = [showing.about(one) for one in chosen]
    collected = Collected(evenly_spaced(entries[0].header.length_steps) if sheet is not None else ())
    video = None
    if out is None:
        deque(collected.passing(films[0]), maxlen=0)
    else:
        rate = pictures_per_s(showing.library.setting_of(entries[0]))
        count = max(entry.header.length_steps for entry in entries) + 1
        frames: Iterator[Array]
        if len(chosen) == 1:
            frames = map(_drawer(showing, abouts[0]), collected.passing(films[0]))
        else:
            frames = iterate_grid(abouts, films, [_drawer(showing, about, is_tile=True) for about in abouts])
        video = asdict(write_video(out, frames, pictures_per_s=rate, count=count))
        video |= {"pictures_per_s": float(rate), "bytes": video.pop("size_bytes")}
    if sheet is not None:
        _write_sheet(showing, chosen[0], abouts[0], collected, sheet)
    return {"video": video, "sheet": sheet}


def _drawer(showing: Showing, about: About, *, is_tile: bool = False) -> Drawer:
    target = TARGET_TILE_HEIGHT if is_tile else TARGET_HEIGHT
    if showing.overlay:
        return Overlay(about, scale=showing.scale, target=target).draw
    # a single episode keeps the game's own pixels
    return partial(enlarged, scale=showing.scale if is_tile else showing.scale or 1, target=target)


def _write_sheet(showing: Showing, one: Listed, about: About, collected: Collected, target: Path) -> None:
    setting = showing.library.setting_of(entry_of(one))
    told = (about.title, about.subtitle, f"return {signed(one.total_reward)}", f"{one.length_steps:,} steps")
    picture = draw_sheet(
        collected.pictures,
        about,
        title=f"{plain_text(setting.env_id)} · {showing.run.resolve().name}",
        subtitle=" · ".join(told),
        scale=showing.scale,
    )
    write_sheet(picture, target, "--sheet")


@dataclass(frozen=True)
class Wanted:
    """An episode that gets a video, and why."""

    episode: Listed
    name: str  # begins the name of the file
    why: str


def best_so_far(_: Path, listed: Sequence[Listed]) -> list[Wanted]:
    """Return the recorded episodes with a higher return than all before them, recorded or not."""
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
    """Return for every checkpoint the last greedy episode since the previous one, else the last episode."""
    recorded = sorted(
        (one for one in listed if one.entry is not None and one.role != POLICY), key=lambda one: one.steps
    )
    if not recorded:
        raise UserError(_nothing(listed))
    steps = checkpoint_steps(run)
    if not steps:
        raise UserError(f"{run} has no checkpoint yet: use --videos best, or --episode last")
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
    """Return the steps of all checkpoints in a run's events. Anybody may have written that file."""
    path = run / EVENTS
    if not path.is_file():
        return []
    with explained(UserError, path, before="the events can't be read: "):
        rows = read_records(path)
    told = (measured(row.get("steps")) for row in rows if row.get("event") == "checkpoint")
    return sorted({int(steps) for steps in told if steps is not None and steps >= 0})


def _nothing(listed: Sequence[Listed]) -> str:
    if not listed:
        return "no episode has ended yet: train on"
    return f"none of {len(listed):,} episodes that count here is recorded: train with --record all or --record best"


def video_of_best(run: Path, *, plain: bool, requested_stop: RequestedStop) -> Path:
    """Make a video of the best recorded episode of a run and return its path; UserError if that fails."""
    try:
        library = open_library(run)
        best = select(list_episodes(run, library), BEST)
        showing = Showing(run, library)
        path = default_target(showing, [best])
        if not path.exists():
            with progress_bar("video of the best episode", plain=plain) as progress:
                render(showing, [best], out=path, sheet=None, progress=progress, requested_stop=requested_stop)
    except (OSError, ValueError, StoppedWhilePlayingError) as error:  # a damaged recording is a ValueError
        raise UserError(str(error)) from error
    return path


def make_videos(showing: Showing, wanted: Sequence[Wanted], kind: str, flags: Printing) -> int:
    """Make the videos that do not exist yet, and return the exit code."""
    folder = showing.run / VIDEOS
    make_folder(folder)
    videos: list[dict[str, Any]] = []
    with StopRequest() as stop:
        for count, one in enumerate(wanted, start=1):
            episode, path = one.episode, folder / f"{one.name}_{video_name(one.episode, showing)}.mp4"
            made, is_new = {"path": path}, not path.exists()
            if is_new:
                with progress_bar(f"video {count} of {len(wanted)}", plain=is_plain(flags)) as progress:
                    made = render(
                        showing, [episode], out=path, sheet=None, progress=progress, requested_stop=stop.reason
                    )["video"]
            known = {"id": episode.id, "role": episode.role, "steps": episode.steps, "return": episode.total_reward}
            videos.append({**known, "why": one.why, "made": is_new, **made})
            if not flags.json:
                state = size(path.stat().st_size) if is_new else "exists already"
                print(f"{one.why}: episode {episode.id}, return {number(episode.total_reward)}: {path} ({state})")
    num_made = sum(video["made"] for video in videos)
    said = f"{num_made} video{'s' * (num_made != 1)} made, {len(videos) - num_made} existed already"
    return give({"run": showing.run, "kind": kind, "videos": videos}, flags, lambda _, plain: print(said))
