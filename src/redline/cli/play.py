"""`redline play RUN`: recorded episodes are played again, to be watched or checked, and policies play afresh."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated

import tyro

from redline.cli.main import DONE, FAILED, refuse
from redline.cli.parsing import parse
from redline.cli.play_checking import check_recordings, differences_of, problems_of, warn
from redline.cli.play_rendering import Look, Rendered, Showing, default_target, render
from redline.cli.play_videos import best_so_far, make_videos, newest_at_checkpoints
from redline.cli.stopping import StopRequest
from redline.cli.tables import is_plain, progress_bar
from redline.cli.wording import command, number, size, typed_env
from redline.errors import UserError
from redline.recordings.drawing import MAX_SCALE
from redline.recordings.episode import RecordingError
from redline.recordings.library import BEST, Entry, Library, Listed, list_episodes, open_library, select
from redline.recordings.replaying import StoppedWhilePlayingError
from redline.recordings.video import check_target
from redline.records import plain_text
from redline.runs.directory import read_run_json
from redline.runs.errors import explain
from redline.runs.finding import NEWEST
from redline.runs.locating import locate_run
from redline.runtime.resuming import check_env, read_run

PROGRAM = "redline play RUN"
EXAMPLE = "redline play runs/pong/dqn/20260101-120000-s1 --episode best --out best.mp4"
MAX_GRID = 16


@dataclass(frozen=True)
class PlayFlags:
    """Play recorded episodes again, bit for bit, and make a video of them. A run that is training is not disturbed."""

    episode: str | None = None
    """Episode to show: an id that redline episodes lists, best, last or worst; best if not given, with --verify all."""
    out: Path | None = None
    """Video to write: .mp4 (needs the extra video) or .gif; if not given, an .mp4 in RUN/videos."""
    overlay: bool = False
    """Tell return, step, action and what the agent thought (if it was recorded) beside the picture."""
    grid: str | None = None
    """Episodes side by side: a number N for N of them spread evenly over the run, or ids and words as 3,17,best."""
    sheet: Path | None = None
    """PNG to write: evenly spaced pictures of the episode."""
    scale: int | None = None
    """Every pixel becomes a square of N × N; if not given 1, and what makes words readable with --overlay or --grid."""
    verify: bool = False
    """Only check: play all recordings again, or the one named, and compare; exit code 1 if one differs."""
    videos: Annotated[str | None, tyro.conf.arg(metavar="best|checkpoints")] = None
    """Make videos in RUN/videos: of every episode that was the best so far, or of the newest at every checkpoint."""
    policy: bool = False
    """Let the policy of a checkpoint play afresh, and record that in the run as episodes p1, p2, …"""
    episodes: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """With --policy: episodes to play."""
    seed: int = 0
    """With --policy: seed of the games and of random actions."""
    checkpoint: str = NEWEST
    """With --policy: checkpoint to load: newest, best or its steps."""
    epsilon: float | None = None
    """With --policy: share of random actions; as the algorithm's paper evaluates if not given."""
    sample: bool = False
    """With --policy: draw actions from the policy of a policy-gradient run instead of taking its likeliest."""
    device: str = "auto"
    """With --policy: where the network computes: auto, cpu, cuda or cuda:i."""
    env: str | None = None
    """Env of the run, to be typed again if it names a module (mypkg:MyEnv-v0): no file has one imported."""
    plain: bool = False
    """Plain text, no drawing."""
    json: bool = False
    """Print the result as one JSON object on stdout, and nothing else there."""


VIEW = ("episode", "out", "grid", "sheet")
KINDS = {"best": best_so_far, "checkpoints": newest_at_checkpoints}  # of --videos
OF_POLICY = ("episodes", "seed", "checkpoint", "epsilon", "sample", "device")


def run(args: Sequence[str]) -> int:
    """Do what the flags say and return the exit code."""
    if "--help" in args or "-h" in args:
        parse(PlayFlags, ["--help"], default=PlayFlags(), prog=PROGRAM)
    folder, rest = split_run(args)
    flags = parse(PlayFlags, rest, default=PlayFlags(), prog=PROGRAM)
    check_flags(flags)
    try:
        return play(folder, flags)
    except RecordingError as error:
        return refuse(f"it can't be played as it was recorded: {plain_text(error)}", as_json=flags.json, code=FAILED)
    except StoppedWhilePlayingError as stopped:
        return refuse(f"{stopped}: nothing is left half written", as_json=flags.json, code=FAILED)


def split_run(args: Sequence[str]) -> tuple[Path, list[str]]:
    """Return the run directory, wherever it was typed, and the flags."""
    with_value = {f"--{field.name}" for field in fields(PlayFlags) if field.type is not bool}
    for place, arg in enumerate(args):
        if not arg.startswith("-") and (place == 0 or args[place - 1] not in with_value):
            return locate_run(arg), [*args[:place], *args[place + 1 :]]
    raise UserError(f"play needs a run directory: {EXAMPLE}")


def check_flags(flags: PlayFlags) -> None:
    """Refuse flags that contradict each other, and what can't be written, before anything is played."""
    usual = PlayFlags()
    modes = [f"--{name}" for name in ("verify", "videos", "policy") if getattr(flags, name)]
    if len(modes) > 1:
        raise UserError(f"{' and '.join(modes)} do different things: use one of them")
    given = [f"--{name}" for name in VIEW if getattr(flags, name) is not None]
    if flags.videos and given:
        raise UserError(f"--videos chooses episodes and names itself: leave out {', '.join(given)}")
    looks = [f"--{name}" for name in ("overlay", "scale") if getattr(flags, name) != getattr(usual, name)]
    if flags.verify and (unfit := [name for name in (*given, *looks) if name != "--episode"]):
        raise UserError(f"--verify only checks: leave out {', '.join(unfit)}")
    of_policy = [f"--{name}" for name in OF_POLICY if getattr(flags, name) != getattr(usual, name)]
    if of_policy and not flags.policy:
        raise UserError(f"{', '.join(of_policy)} go with --policy: add it, or leave them out")
    if flags.grid and (flags.episode or flags.sheet):
        raise UserError("--grid names its episodes itself, and a sheet shows one: leave out --episode and --sheet")
    if flags.videos not in (None, *KINDS):
        raise UserError(f"videos is {flags.videos!r}: use {' or '.join(KINDS)}")
    if flags.scale is not None and not 1 <= flags.scale <= MAX_SCALE:
        raise UserError(f"scale is {flags.scale}: use 1 to {MAX_SCALE}")
    if flags.out is not None:
        check_target(flags.out)
    if flags.sheet is not None:
        check_sheet(flags.sheet)


def check_sheet(target: Path) -> None:
    """Refuse what can't become a sheet."""
    if target.suffix.lower() != ".png":
        raise UserError(f"a sheet is a PNG: use --sheet {target.with_suffix('.png')}")
    if target.is_dir() or not target.parent.is_dir():
        what = "is a folder" if target.is_dir() else f"lies in no folder: {target.parent} does not exist"
        raise UserError(f"{target} {what}: use another --sheet")


def play(folder: Path, flags: PlayFlags) -> int:
    """Check, make many videos, or show."""
    if flags.env is not None:
        check_env(read_run(folder), flags.env)
    plain = is_plain(plain=flags.plain, as_json=flags.json)
    played = play_afresh(folder, flags, plain=plain) if flags.policy else None
    library = read_library(folder)
    listed = list_episodes(folder, library)
    if flags.verify:
        named = None if flags.episode is None else select(listed, flags.episode)
        return check_recordings(folder, library, listed, named=named, plain=plain, as_json=flags.json)
    warn(problems_of(library))
    showing = Showing(folder, library, Look(flags.overlay, flags.scale))
    if flags.videos:
        wanted = KINDS[flags.videos](folder, listed)
        return make_videos(showing, wanted, kind=flags.videos, plain=plain, as_json=flags.json)
    if played is not None:
        listed = those_of(listed, library, played)
        if not flags.overlay and all(getattr(flags, name) is None for name in VIEW):
            return tell_played(folder, listed, None, flags=flags)
    chosen = choose_episodes(listed, flags)
    warn(differences_of(library, [one.entry for one in chosen if one.entry is not None]))
    out = flags.out
    if out is None and flags.sheet is None:
        out = default_target(folder, chosen, showing.look)
    what = "an episode" if len(chosen) == 1 else f"{len(chosen)} episodes"
    with StopRequest() as stop, progress_bar(f"playing {what} again", plain=plain) as progress:
        rendered = render(showing, chosen, out=out, sheet=flags.sheet, progress=progress, requested_stop=stop.reason)
    if played is not None:
        return tell_played(folder, listed, rendered, flags=flags)
    return tell_shown(folder, chosen, rendered, flags=flags)


def play_afresh(folder: Path, flags: PlayFlags, *, plain: bool) -> list[Entry]:
    """Let the policy play, and return what was recorded of it."""
    from redline.envs.vector import EnvError
    from redline.runtime.evaluation import EvaluationConfig, StoppedWhileEvaluatingError
    from redline.runtime.policy_play import play_policy

    config = EvaluationConfig(
        episodes=flags.episodes,
        seed=flags.seed,
        epsilon=flags.epsilon,
        sample=flags.sample,
        device=flags.device,
    )
    what = "an episode" if flags.episodes == 1 else f"{flags.episodes:,} episodes"
    try:
        with StopRequest() as stop, progress_bar(f"playing {what}", plain=plain) as progress:
            return play_policy(
                folder, config, progress=progress, requested_stop=stop.reason, checkpoint=flags.checkpoint
            )
    except StoppedWhileEvaluatingError as stopped:
        raise StoppedWhilePlayingError(str(stopped)) from None
    except EnvError as error:
        raise RecordingError(str(error)) from error


def read_library(folder: Path) -> Library:
    """Read what a run has recorded; UserError where there is no run or nothing can be read."""
    try:
        library = open_library(folder)
    except OSError as error:
        raise UserError(f"the recordings can't be read: {explain(error, Path(error.filename or folder))}") from None
    if not library.entries and not library.damages:
        read_run_json(folder)  # tells if this is no run at all
    return library


def choose_episodes(listed: Sequence[Listed], flags: PlayFlags) -> list[Listed]:
    """Return the episodes that the flags name."""
    if flags.grid is None:
        return [select(listed, flags.episode or BEST)]
    words = [word.strip() for word in flags.grid.split(",") if word.strip()]
    if len(words) == 1 and words[0].isascii() and words[0].isdigit():
        count = int(words[0][:9])
        select(listed, BEST)  # tells if there is none
        recorded = [one for one in listed if one.entry is not None]
        words = [recorded[place].id for place in _spread(len(recorded), min(count, MAX_GRID + 1))]
    if not 2 <= len(words) <= MAX_GRID:
        raise UserError(
            f"a grid has 2 to {MAX_GRID} episodes, not {len(words)}: use --grid 4 or ids as --grid 3,17,best"
        )
    return [select(listed, word) for word in words]


def _spread(total: int, count: int) -> list[int]:
    """Return so many places from the first to the last, or all if there are fewer."""
    if count >= total or count < 2:
        return list(range(min(total, count)))
    return [round(place * (total - 1) / (count - 1)) for place in range(count)]


def those_of(listed: Sequence[Listed], library: Library, played: Sequence[Entry]) -> list[Listed]:
    """Return the listed episodes that have just been played."""
    found = [library.find(entry.address) for entry in played]
    wanted = {entry.index for entry in found if entry is not None}
    return [one for one in listed if one.entry is not None and one.entry.index in wanted]


def tell_played(folder: Path, listed: Sequence[Listed], rendered: Rendered | None, *, flags: PlayFlags) -> int:
    """Tell what the policy played, and what was made of it."""
    if flags.json:
        facts = {"played": [episode_facts(one) for one in listed], **(rendered.facts() if rendered else {})}
        print(json.dumps({"schema": 1, "run": str(folder), **facts}))
        return DONE
    for one in listed:
        print(f"episode {one.id}: {describe(one)}")
    if rendered is not None:
        tell_files(rendered)
    else:
        typed = [] if flags.env is None else typed_env(flags.env)
        shown = command("play", folder, "--episode", listed[-1].id, "--overlay", *typed)
        print(f"recorded: {shown} makes a video of it")
    return DONE


def tell_shown(folder: Path, chosen: Sequence[Listed], rendered: Rendered, *, flags: PlayFlags) -> int:
    """Tell what was shown, and where."""
    if flags.json:
        episodes = [episode_facts(one) for one in chosen]
        print(json.dumps({"schema": 1, "run": str(folder), "episodes": episodes, **rendered.facts()}))
        return DONE
    for one in chosen:
        print(f"episode {one.id}: {describe(one)}")
    tell_files(rendered)
    return DONE


def tell_files(rendered: Rendered) -> None:
    """Say which files were written."""
    if (video := rendered.video) is not None:
        kind = (
            f"{video.pictures:,} pictures of {video.width} × {video.height}, {float(video.pictures_per_s):g} per second"
        )
        print(f"video of {kind}, {size(video.size_bytes)}: {video.path}")
    if rendered.sheet is not None:
        print(f"contact sheet: {rendered.sheet}")


def describe(one: Listed) -> str:
    """Say in a few words which episode this is."""
    weights = "" if one.weights_steps is None else f" with the weights of step {one.weights_steps:,}"
    length = f"{one.length_steps:,} steps, ended at step {one.steps:,}"
    return f"{one.role}{weights}, return {number(one.total_reward)}, {length}"


def episode_facts(one: Listed) -> dict[str, object]:
    """Return an episode as a plain object."""
    return {
        "id": one.id,
        "role": one.role,
        "steps": one.steps,
        "return": one.total_reward,
        "length_steps": one.length_steps,
        "lane": one.lane,
        "seed": one.reset_seed,
        "seed_offset_steps": one.seed_offset_steps,
        "weights_steps": one.weights_steps,
    }
