"""Chosen episodes → a video, a contact sheet, or both from one pass."""

import io
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from redline.envs.vector import Progress
from redline.errors import UserError
from redline.recordings.library import Entry, Library, Listed
from redline.recordings.overlay import (
    TARGET_HEIGHT,
    TARGET_TILE_HEIGHT,
    About,
    Drawer,
    Enlarged,
    Overlay,
    about_episode,
    iterate_grid,
    signed,
)
from redline.recordings.replaying import RequestedStop, iterate_pictures, pictures_per_s
from redline.recordings.sheet import Collected, draw_sheet, evenly_spaced
from redline.recordings.video import Video, check_target, find_encoder, write_video
from redline.records import plain_text
from redline.runs.atomic import replace_file
from redline.runs.errors import explain
from redline.types import Array

VIDEOS = "videos"  # folder in a run


@dataclass(frozen=True)
class Look:
    """How an episode is shown."""

    overlay: bool
    scale: int | None

    @property
    def suffix(self) -> str:
        """Return what tells files of different looks apart."""
        return f"{'_overlay' * self.overlay}{'' if self.scale is None else f'_x{self.scale}'}"


@dataclass(frozen=True)
class Showing:
    """From where episodes are shown, and how."""

    run: Path
    library: Library
    look: Look

    def about(self, one: Listed) -> About:
        """Return what is told of an episode beside its pictures."""
        return about_episode(self.library, entry_of(one), name=f"episode {one.id}")


@dataclass(frozen=True)
class Rendered:
    """What was written."""

    video: Video | None
    sheet: Path | None

    def facts(self) -> dict[str, object]:
        """Return it as a plain object."""
        return {
            "video": None if self.video is None else video_facts(self.video),
            "sheet": None if self.sheet is None else str(self.sheet),
        }


def video_facts(video: Video) -> dict[str, object]:
    """Return a video as a plain object."""
    return {
        "path": str(video.path),
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


def default_target(run: Path, chosen: Sequence[Listed], look: Look) -> Path:
    """Return where a video goes that was given no name, in a folder that is made if need be."""
    name = (
        video_name(chosen[0], look) if len(chosen) == 1 else f"grid_{'_'.join(one.id for one in chosen)}{look.suffix}"
    )
    target = run / VIDEOS / f"{name}.mp4"
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


def video_name(one: Listed, look: Look) -> str:
    """Return a file's name that says which episode it shows."""
    return f"step{one.steps}_return{one.total_reward:.10g}_episode{one.id}{look.suffix}"


def render(
    showing: Showing,
    chosen: Sequence[Listed],
    *,
    out: Path | None,
    sheet: Path | None,
    progress: Progress,
    requested_stop: RequestedStop,
) -> Rendered:
    """Play the episodes again and write what is asked for."""
    share = shared_progress(progress, [entry_of(one).end_steps for one in chosen])
    films = [
        iterate_pictures(showing.library, entry_of(one), progress=share(place), requested_stop=requested_stop)
        for place, one in enumerate(chosen)
    ]
    abouts = [showing.about(one) for one in chosen]
    collected = Collected(evenly_spaced(entry_of(chosen[0]).length_steps) if sheet is not None else ())
    video = None
    if out is None:
        deque(collected.passing(films[0]), maxlen=0)
    else:
        rate = pictures_per_s(showing.library.setting_of(entry_of(chosen[0])))
        count = max(entry_of(one).length_steps for one in chosen) + 1
        frames: Iterator[Array]
        if len(chosen) == 1:
            frames = map(_drawer(showing.look, abouts[0]), collected.passing(films[0]))
        else:
            frames = iterate_grid(abouts, films, [_drawer(showing.look, about, is_tile=True) for about in abouts])
        video = write_video(out, frames, pictures_per_s=rate, count=count)
    if sheet is not None:
        _write_sheet(showing, chosen[0], abouts[0], collected, sheet)
    return Rendered(video, sheet)


def _drawer(look: Look, about: About, *, is_tile: bool = False) -> Drawer:
    target = TARGET_TILE_HEIGHT if is_tile else TARGET_HEIGHT
    if look.overlay:
        return Overlay(about, scale=look.scale, target=target).draw
    # a lone picture is the game's own, pixel for pixel
    return Enlarged(look.scale if is_tile else look.scale or 1, target=target).draw


def shared_progress(progress: Progress, weights: Sequence[int]) -> Callable[[int], Progress]:
    """Return what each of several films tells its share to; `progress` hears the share of all."""
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
        scale=showing.look.scale,
    )
    content = io.BytesIO()
    picture.save(content, "PNG")
    try:
        replace_file(target, [content.getvalue()])
    except OSError as error:
        raise UserError(f"cannot write {explain(error, target)}: use another --sheet") from None
