"""`redline play RUN`: play recorded episodes again, to watch or to check them, or let the policy play new ones."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.cli.episodes import problems_of, read_library
from redline.cli.main import DONE, FAILED, FailureError, failing
from redline.cli.output import command, give, is_plain, progress_bar, typed_env, warn
from redline.cli.parsing import Json, Plain, Run, RunEnv, parse
from redline.cli.play_videos import (
    Showing,
    best_so_far,
    default_target,
    make_videos,
    newest_at_checkpoints,
    render,
)
from redline.cli.process import StopRequest
from redline.episodes.episode import RecordingError
from redline.episodes.library import BEST, Entry, Library, Listed, list_episodes, select
from redline.episodes.overlay import MAX_SCALE
from redline.episodes.replaying import StoppedWhilePlayingError
from redline.episodes.sheet import evenly_spaced
from redline.episodes.verifying import Verdict, verify
from redline.episodes.video import check_target
from redline.errors import UserError, check_range
from redline.files import check_replaceable
from redline.jsonl import plain_text
from redline.runs.host import usable_cores
from redline.runs.locating import locate_run
from redline.runs.manifest import NEWEST
from redline.runs.run_json import read_run_json
from redline.runtime.resuming import check_env, read_run
from redline.units import duration, number, size

MAX_GRID = 16
MAX_LINES = 20


@dataclass(frozen=True)
class PlayFlags:
    """Play recorded episodes again, bit for bit, and make a video of them. A run that still trains is not disturbed."""

    run: Run
    episode: str | None = None
    """Episode to show: an id from redline episodes, best, last or worst. By default best, with --verify all."""
    out: Path | None = None
    """Video to write: .mp4 (needs the extra video) or .gif. By default an .mp4 in RUN/videos."""
    overlay: bool = False
    """Show return, step, action and, if recorded, the agent's action values beside the picture."""
    grid: str | None = None
    """Episodes side by side: a number of them, spread evenly over the run, or a list such as 3,17,best."""
    sheet: Path | None = None
    """PNG to write: evenly spaced pictures of the episode."""
    scale: int | None = None
    """Enlarge every pixel to N × N. By default 1; with --overlay or --grid large enough to read the text."""
    verify: bool = False
    """Only check: play all recordings again, or that of --episode, and compare; exit code 1 if one differs."""
    videos: Annotated[str | None, tyro.conf.arg(metavar="best|checkpoints")] = None
    """Make videos in RUN/videos: of every episode that was the best so far, or of one at every checkpoint."""
    policy: bool = False
    """Let the policy of a checkpoint play new episodes, and record them in the run as p1, p2, …"""
    episodes: Annotated[int, tyro.conf.arg(metavar="N")] = 1
    """With --policy: number of episodes."""
    seed: int = 0
    """With --policy: seed of the games and of random actions."""
    checkpoint: str = NEWEST
    """With --policy: checkpoint to load: newest, best or its steps."""
    epsilon: float | None = None
    """With --policy: share of random actions. By default that of the algorithm's paper."""
    sample: bool = False
    """With --policy: sample actions from the policy of a policy-gradient run instead of taking the likeliest."""
    device: str = "auto"
    """With --policy: device of the network: auto, cpu, cuda or cuda:i."""
    env: RunEnv = None
    plain: Plain = False
    json: Json = False


VIEW = ("episode", "out", "grid", "sheet")
KINDS = {"best": best_so_far, "checkpoints": newest_at_checkpoints}  # of --videos
OF_POLICY = ("episodes", "seed", "checkpoint", "epsilon", "sample", "device")


def run(args: Sequence[str]) -> int:
    flags = parse(PlayFlags, args, prog="redline play")
    check_flags(flags)
    try:
        with failing(StoppedWhilePlayingError, after=": no unfinished file is left"):
            return play(locate_run(flags.run), flags)
    except RecordingError as error:
        raise FailureError(f"the recording can't be played again: {plain_text(error)}") from error


def check_flags(flags: PlayFlags) -> None:
    """Refuse flags that contradict each other, and files that can't be written, before anything is played."""
    usual = PlayFlags(run=flags.run)
    modes = [f"--{name}" for name in ("verify", "videos", "policy") if getattr(flags, name)]
    if len(modes) > 1:
        raise UserError(f"{' and '.join(modes)} do different things: use one of them")
    given = [f"--{name}" for name in VIEW if getattr(flags, name) is not None]
    if flags.videos and given:
        raise UserError(f"--videos chooses episodes and names its files: leave out {', '.join(given)}")
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
    if flags.scale is not None:
        check_range("scale", flags.scale, 1, MAX_SCALE)
    if flags.out is not None:
        check_target(flags.out)
    if flags.sheet is not None:
        check_sheet(flags.sheet)


def check_sheet(target: Path) -> None:
    """Refuse a sheet that is no PNG, or can't be written."""
    if target.suffix.lower() != ".png":
        raise UserError(f"a sheet is a PNG: use --sheet {target.with_suffix('.png')}")
    if target.is_dir() or not target.parent.is_dir():
        what = "is a folder" if target.is_dir() else f"lies in no folder: {target.parent} does not exist"
        raise UserError(f"{target} {what}: use another --sheet")
    check_replaceable(target)


def play(folder: Path, flags: PlayFlags) -> int:
    """Check recordings, make many videos, or show one episode or grid."""
    if flags.env is not None:
        check_env(read_run(folder), flags.env)
    played = play_new(folder, flags) if flags.policy else None
    library = read_library(folder)
    if not library.entries and not library.damages:
        read_run_json(folder)  # raises UserError if this is no run at all
    listed = list_episodes(folder, library)
    if flags.verify:
        return check_recordings(folder, library, listed, flags)
    warn(problems_of(library))
    showing = Showing(folder, library, flags.overlay, flags.scale)
    if flags.videos:
        return make_videos(showing, KINDS[flags.videos](folder, listed), flags.videos, flags)
    if played is not None:
        found = [library.find(entry.address) for entry in played]
        listed = [one for one in listed if one.entry is not None and one.entry in found]
        if not flags.overlay and all(getattr(flags, name) is None for name in VIEW):
            return tell(folder, listed, {}, flags)
    chosen = choose_episodes(listed, flags)
    warn(differences_of(library, [one.entry for one in chosen if one.entry is not None]))
    out = default_target(showing, chosen) if flags.out is None and flags.sheet is None else flags.out
    with StopRequest() as stop, progress_bar(f"playing {count(chosen)} again", plain=is_plain(flags)) as progress:
        files = render(showing, chosen, out=out, sheet=flags.sheet, progress=progress, requested_stop=stop.reason)
    return tell(folder, chosen if played is None else listed, files, flags)


def count(episodes: Sequence[object]) -> str:
    return "an episode" if len(episodes) == 1 else f"{len(episodes):,} episodes"


def play_new(folder: Path, flags: PlayFlags) -> list[Entry]:
    """Let the policy play new episodes, and return their recordings."""
    from redline.envs.vector import EnvError
    from redline.runtime.actor import StoppedWhileEvaluatingError
    from redline.runtime.playing import EvaluationConfig, play_policy

    config = EvaluationConfig(
        episodes=flags.episodes,
        seed=flags.seed,
        epsilon=flags.epsilon,
        sample=flags.sample,
        device=flags.device,
    )
    what = f"playing {count(range(flags.episodes))}"
    stopped = failing(StoppedWhileEvaluatingError, after=": no unfinished file is left")
    with StopRequest() as stop, failing(EnvError), stopped, progress_bar(what, plain=is_plain(flags)) as progress:
        return play_policy(folder, config, progress=progress, requested_stop=stop.reason, checkpoint=flags.checkpoint)


def choose_episodes(listed: Sequence[Listed], flags: PlayFlags) -> list[Listed]:
    if flags.grid is None:
        return [select(listed, flags.episode or BEST)]
    words = [word.strip() for word in flags.grid.split(",") if word.strip()]
    if len(words) == 1 and words[0].isascii() and words[0].isdigit():
        wanted = min(int(words[0][:9]), MAX_GRID + 1)
        select(listed, BEST)  # raises UserError if there is none
        recorded = [one.id for one in listed if one.entry is not None]
        words = (
            [recorded[place] for place in evenly_spaced(len(recorded) - 1, wanted)] if wanted > 1 else recorded[:wanted]
        )
    if not 2 <= len(words) <= MAX_GRID:
        raise UserError(
            f"a grid has 2 to {MAX_GRID} episodes, not {len(words)}: use --grid 4 or ids as --grid 3,17,best"
        )
    return [select(listed, word) for word in words]


def tell(folder: Path, shown: Sequence[Listed], files: Mapping[str, Any], flags: PlayFlags) -> int:
    """Print which episodes were shown or newly played, and the files; return the exit code."""

    def show(_: object, *, plain: bool) -> None:
        for one in shown:
            weights = "" if one.weights_steps is None else f" with the weights of step {one.weights_steps:,}"
            length = f"{one.length_steps:,} steps, ended at step {one.steps:,}"
            print(f"episode {one.id}: {one.role}{weights}, return {number(one.total_reward)}, {length}")
        if (video := files.get("video")) is not None:
            pictures = f"{video['pictures']:,} pictures of {video['width']} × {video['height']}"
            about = f"{pictures}, {video['pictures_per_s']:g} per second, {size(video['bytes'])}"
            print(f"video of {about}: {video['path']}")
        if files.get("sheet") is not None:
            print(f"contact sheet: {files['sheet']}")
        if not files:
            typed = [] if flags.env is None else typed_env(flags.env)
            video = command("play", folder, "--episode", shown[-1].id, "--overlay", *typed)
            print(f"recorded; make a video of it with: {video}")

    episodes = [
        {
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
        for one in shown
    ]
    return give({"run": folder, "played" if flags.policy else "episodes": episodes, **files}, flags, show)


# --verify


def differences_of(library: Library, entries: Sequence[Entry]) -> list[str]:
    """Return what has changed since these were recorded, a line each."""
    used = dict.fromkeys(entry.setting for entry in entries)
    return list(dict.fromkeys(line for place in used for line in library.settings[place].differences()))


def check_recordings(folder: Path, library: Library, listed: Sequence[Listed], flags: PlayFlags) -> int:
    """Play all recordings again, or that of --episode, and compare them bit for bit; return the exit code."""
    entries: Sequence[Entry] = library.entries
    if flags.episode is not None:
        entries = [entry for entry in [select(listed, flags.episode).entry] if entry is not None]
    differences = differences_of(library, entries)
    warn([*differences, *problems_of(library)])
    begun_s, what = time.monotonic(), f"playing {count(entries)} again"
    stopped = failing(StoppedWhilePlayingError, after=": the rest was not checked")
    with StopRequest() as stop, stopped, progress_bar(what, plain=is_plain(flags)) as progress:
        verdicts = verify(library, entries, threads=usable_cores(), progress=progress, requested_stop=stop.reason)
    ids = {one.entry.index: one.id for one in listed if one.entry is not None}
    mismatches = [_mismatch(ids, verdict) for verdict in verdicts if verdict.mismatch is not None]
    facts = {
        "run": folder,
        "episodes": len(verdicts),
        "verified": len(verdicts) - len(mismatches),
        "mismatches": mismatches,
        "damages": [plain_text(line) for line in library.damages],
        "torn_tail": library.torn_tail,
        "steps": sum(verdict.entry.header.length_steps for verdict in verdicts),
        "differences": [plain_text(line) for line in differences],
        "duration_s": time.monotonic() - begun_s,
    }
    give(facts, flags, _show_verdicts)
    return DONE if verdicts and not mismatches and not library.damages else FAILED


def _mismatch(ids: Mapping[int, str], verdict: Verdict) -> dict[str, object]:
    address = verdict.entry.address
    return {
        "id": ids.get(verdict.entry.index),
        "role": plain_text(address.role),
        "lane": address.lane,
        "seed": address.reset_seed,
        "seed_offset_steps": address.seed_offset_steps,
        "what": plain_text(verdict.mismatch),
    }


def _show_verdicts(facts: Mapping[str, Any], *, plain: bool) -> None:
    mismatches, damages = facts["mismatches"], facts["damages"]
    for one in mismatches[:MAX_LINES]:
        name = "an episode" if one["id"] is None else f"episode {one['id']}"
        where = f"{one['role']}, lane {one['lane']}, seed {one['seed']}, {one['seed_offset_steps']:,} steps after it"
        print(f"{name} ({where}): {one['what']}")
    if len(mismatches) > MAX_LINES:
        print(f"and {len(mismatches) - MAX_LINES:,} more differ")
    if not facts["episodes"]:
        print(f"{facts['run']}: no episode is recorded: nothing was checked")
        return
    took = f"{facts['steps']:,} steps, in {duration(facts['duration_s'])}"
    print(f"{facts['run']}: {facts['verified']:,} of {facts['episodes']:,} episodes came back bit for bit ({took})")
    if damages:
        print(f"{len(damages):,} record{'s are' if len(damages) > 1 else ' is'} damaged")
