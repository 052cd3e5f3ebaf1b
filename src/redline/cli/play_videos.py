"""Episodes → videos and contact sheets: one episode, several side by side, or all that tell how a run went."""

import io
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from redline.cli.main import DONE
from redline.cli.output import print_json, progress_bar
from redline.cli.stopping import StopRequest
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
from redline.episodes.video import Video, check_target, find_encoder, write_video
from redline.errors import UserError
from redline.files import explain, replace_file
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
        """Return what is shown beside the pictures of an episode."""
        return about_episode(self.library, entry_of(one), name=f"episode {one.id}")


@dataclass(frozen=True)
class Rendered:
    """The files that were written."""

    video: Video | None
    sheet: Path | None

    def facts(self) -> dict[str, object]:
        """Return it as a plain object."""
        return {
            "video": None if self.video is None else video_facts(self.video),
            "sheet": self.sheet,
        }


def video_facts(video: Video) -> dict[str, object]:
    """Return a video as a plain object."""
    return {
        "path": video.path,
        "pictures": video.pictures,
        "width": video.width,
        "height": video.height,
        "pictures_per_s": float(video.pictures_per_s),
        "bytes": video.size_bytes,
    }


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
    find_encoder()
    make_folder(target.parent)
    check_target(target)
    return target


def make_folder(folder: Path) -> None:
    """Make the folder of a run's videos."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make {explain(error, folder)}: use --out with another place") from None


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
) -> Rendered:
    """Play the episodes again and write the files that are asked for."""
    share = shared_progress(progress, [entry_of(one).header.end_steps for one in chosen])
    films = [
        iterate_pictures(showing.library, entry_of(one), progress=share(place), requested_stop=requested_stop)
        for place, one in enumerate(chosen)
    ]
    abouts = [showing.about(one) for one in chosen]
    collected = Collected(evenly_spaced(entry_of(chosen[0]).header.length_steps) if sheet is not None else ())
    video = None
    if out is None:
        deque(collected.passing(films[0]), maxlen=0)
    else:
        rate = pictures_per_s(showing.library.setting_of(entry_of(chosen[0])))
        count = max(entry_of(one).header.length_steps for one in chosen) + 1
        frames: Iterator[Array]
        if len(chosen) == 1:
            frames = map(_drawer(showing, abouts[0]), collected.passing(films[0]))
        else:
            frames = iterate_grid(abouts, films, [_drawer(showing, about, is_tile=True) for about in abouts])
        video = write_video(out, frames, pictures_per_s=rate, count=count)
    if sheet is not None:
        _write_sheet(showing, chosen[0], abouts[0], collected, sheet)
    return Rendered(video, sheet)


def _drawer(showing: Showing, about: About, *, is_tile: bool = False) -> Drawer:
    target = TARGET_TILE_HEIGHT if is_tile else TARGET_HEIGHT
    if showing.overlay:
        return Overlay(about, scale=showing.scale, target=target).draw
    # a single episode keeps the game's own pixels
    return partial(enlarged, scale=showing.scale if is_tile else showing.scale or 1, target=target)


def shared_progress(progress: Progress, weights: Sequence[int]) -> Callable[[int], Progress]:
    """Return a progress function for each of several films; `progress` gets the share of all."""
    shares = [0.0] * len(weights)

    def of(place: int) -> Progress:
        def tell(share: float) -> None:
            shares[place] = share
            progress(sum(one * weight for one, weight in zip(shares, weights, strict=True)) / sum(weights))

        return tell

    return of


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
    content = io.BytesIO()
    picture.save(content, "PNG")
    try:
        replace_file(target, [content.getvalue()])
    except OSError as error:
        raise UserError(f"cannot write {explain(error, target)}: use another --sheet") from None


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
    try:
        rows = read_records(path)
    except OSError as error:
        raise UserError(f"the events can't be read: {explain(error, path)}") from None
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


def make_videos(showing: Showing, wanted: Sequence[Wanted], *, kind: str, plain: bool, as_json: bool) -> int:
    """Make the videos that do not exist yet, and return the exit code."""
    find_encoder()
    folder = showing.run / VIDEOS
    make_folder(folder)
    videos: list[dict[str, object]] = []
    with StopRequest() as stop:
        for count, one in enumerate(wanted, start=1):
            episode, path = one.episode, folder / f"{one.name}_{video_name(one.episode, showing)}.mp4"
            facts: dict[str, object] = {"path": path}
            is_new = not path.exists()
            if is_new:
                with progress_bar(f"video {count} of {len(wanted)}", plain=plain) as progress:
                    rendered = render(
                        showing, [episode], out=path, sheet=None, progress=progress, requested_stop=stop.reason
                    )
                facts = facts if rendered.video is None else video_facts(rendered.video)
            known = {"id": episode.id, "role": episode.role, "steps": episode.steps, "return": episode.total_reward}
            videos.append({**known, "why": one.why, "made": is_new, **facts})
            if not as_json:
                state = size(path.stat().st_size) if is_new else "exists already"
                print(f"{one.why}: episode {episode.id}, return {number(episode.total_reward)}: {path} ({state})")
    if as_json:
        print_json({"run": showing.run, "kind": kind, "videos": videos})
    else:
        num_made = sum(bool(video["made"]) for video in videos)
        print(f"{num_made} video{'s' * (num_made != 1)} made, {len(videos) - num_made} existed already")
    return DONE
