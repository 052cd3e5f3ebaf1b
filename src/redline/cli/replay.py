"""`redline replay inspect RUN`: look inside the replay memory of a run."""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from redline.cli.main import DONE
from redline.cli.output import is_plain, print_facts, progress_bar
from redline.cli.parsing import parse
from redline.cli.replay_statistics import ReplayStatistics, replay_statistics
from redline.cli.saved_replay import SavedReplay, draw_transitions, read_replay
from redline.envs.catalog import resolve
from redline.episodes.sheet import draw_transition_sheet
from redline.errors import UserError, unknown_name
from redline.files import explain
from redline.runs.locating import locate_run
from redline.runtime.resuming import check_env, read_run
from redline.units import number

SUBJECTS = ("inspect",)
EXAMPLE = "redline replay inspect runs/pong/dqn/20260101-120000-s1"
MAX_SAMPLES = 200

BAR = "█"


@dataclass(frozen=True)
class InspectFlags:
    """Print what the replay memory of a run holds, and draw a contact sheet of it. The run is only read."""

    checkpoint: int | None = None
    """Steps of the checkpoint to look into; the newest valid one if not given."""
    samples: int = 12
    """Transitions on the contact sheet, drawn uniformly."""
    seed: int = 0
    """Seed of the draw."""
    out: Path | None = None
    """PNG to write; replay-<run>.png in the current folder if not given."""
    env: str | None = None
    """Env of the run, to be typed again if it names a module (mypkg:MyEnv-v0): no file has one imported."""
    plain: bool = False
    """Plain text, no drawing."""
    json: bool = False
    """Print the numbers as one JSON object on stdout, and nothing else there."""

    def __post_init__(self) -> None:
        if not 1 <= self.samples <= MAX_SAMPLES:
            raise UserError(f"samples is {self.samples}: use 1 to {MAX_SAMPLES}")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"seed is {self.seed}: use 0 to {2**31 - 1:_}")


def run(args: Sequence[str]) -> int:
    """Do what the first word names, and return the exit code."""
    words = [i for i, arg in enumerate(args) if arg not in ("--plain", "--json")][:2]
    first = args[words[0]] if words else ""
    if first in ("--help", "-h"):
        print(f"usage: redline replay inspect RUN [options]\n\nsuch as {EXAMPLE}")
        return DONE
    if not first or first.startswith("-"):
        raise UserError(f"replay needs a verb: {EXAMPLE}")
    if first not in SUBJECTS:
        raise unknown_name("verb of replay", first, SUBJECTS)
    second = args[words[1]] if len(words) > 1 else ""
    if second in ("--help", "-h"):
        parse(InspectFlags, ["--help"], default=InspectFlags(), prog="redline replay inspect RUN")
    if not second or second.startswith("-"):
        raise UserError(f"inspect needs a run directory: {EXAMPLE}")
    rest = [arg for i, arg in enumerate(args) if i not in words]
    flags = parse(InspectFlags, rest, default=InspectFlags(), prog="redline replay inspect RUN")
    return inspect(locate_run(second), flags)


def inspect(path: Path, flags: InspectFlags) -> int:
    """Read, count, draw, print."""
    if flags.env is not None:
        check_env(read_run(path), flags.env)
    plain = is_plain(plain=flags.plain, as_json=flags.json)
    with progress_bar("reading the replay memory", plain=plain) as progress:
        replay = read_replay(path, steps=flags.checkpoint, progress=progress)
    out = find_out(path, flags.out)
    for reason in replay.checkpoint.skipped:
        print(f"redline: warning: {reason}", file=sys.stderr)
    statistics = replay_statistics(
        replay.memory, num_actions=replay.spec.num_actions, codec=replay.codec, priorities=replay.priorities
    )
    names = resolve(replay.run.job.env.id).action_names(replay.spec.num_actions)
    samples = draw_transitions(replay.memory, flags.samples, np.random.default_rng(flags.seed))
    sheet = draw_transition_sheet(
        samples,
        title=f"{replay.spec.name} · {replay.run.algorithm} · {path.resolve().name}",
        subtitle=f"step {replay.checkpoint.steps:,} · {describe_fill(statistics)} · "
        f"{len(samples)} drawn uniformly, seed {flags.seed}",
        action_names=names,
    )
    write_png(sheet, out)
    replay.memory.close()
    if flags.json:
        print(json.dumps(to_json(replay, statistics, names=names, out=out, num_samples=len(samples))))
    else:
        show(replay, statistics, names=names, plain=plain)
        print(f"contact sheet of {len(samples)} transitions: {out}")
    return DONE


def find_out(run_path: Path, out: Path | None) -> Path:
    """Return where the sheet goes, never inside the run."""
    target = out or Path(f"replay-{run_path.resolve().name}.png")
    if target.resolve().is_relative_to(run_path.resolve()):
        raise UserError(
            f"{target} lies inside the run, which is only read: use another --out, such as ../{target.name}"
        )
    if target.is_dir():
        raise UserError(f"{target} is a folder: use --out {target / 'sheet.png'}")
    return target


def write_png(sheet: Image.Image, out: Path) -> None:
    """Write the sheet whole or not at all."""
    temporary: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(dir=out.parent, suffix=".png", delete=False) as file:
            temporary = Path(file.name)
            sheet.save(file, "PNG")
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(out)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise UserError(f"cannot write the sheet: {explain(error, out)}: use another --out") from None


def describe_fill(statistics: ReplayStatistics) -> str:
    """Say how full the memory is."""
    fill = statistics.fill
    return f"{fill.transitions:,} of {fill.capacity:,} transitions ({fill.transitions / fill.capacity:.0%})"


def to_json(
    replay: SavedReplay, statistics: ReplayStatistics, *, names: Sequence[str], out: Path, num_samples: int
) -> dict[str, object]:
    """Return everything as one plain object."""
    return {
        "schema": 1,
        "run": str(replay.run.path),
        "checkpoint_steps": replay.checkpoint.steps,
        "skipped": list(replay.checkpoint.skipped),
        "env": replay.spec.name,
        "action_names": list(names),
        **statistics.to_json(),
        "sheet": str(out),
        "sheet_samples": num_samples,
    }


def show(replay: SavedReplay, statistics: ReplayStatistics, *, names: Sequence[str], plain: bool) -> None:
    """Print what the memory holds."""
    print(f"{replay.run.path}: replay memory at step {replay.checkpoint.steps:,}")
    facts = _facts(statistics, names)
    print_facts([(name, fact.rstrip(f" {BAR}")) for name, fact in facts] if plain else facts, plain=plain)


def _facts(statistics: ReplayStatistics, names: Sequence[str]) -> list[tuple[str, str]]:
    fill, endings, rewards = statistics.fill, statistics.endings, statistics.rewards
    rows = [
        ("fill", f"{describe_fill(statistics)}, {fill.sampleable:,} can be drawn"),
        ("storage", _storage(statistics)),
        ("lanes", f"{fill.lanes:,} hold transitions, {fill.lanes_being_written:,} are being written"),
        (
            "episodes",
            f"{endings.episodes:,} ended: {endings.terminated:,} terminated, {endings.truncated:,} truncated or cut; "
            f"{endings.lives_lost:,} lives lost besides",
        ),
        ("mean length", f"{number(endings.mean_length_steps, 1)} steps"),
        ("mean return", f"{number(endings.mean_return)} over {endings.whole_episodes:,} whole episodes, unclipped"),
    ]
    if statistics.step_range is not None:
        low, high = statistics.step_range
        rows.append(("step in episode", f"{low:,} to {high:,}"))
    if rewards is not None:
        rows.append(
            (
                "reward",
                f"min {number(rewards.min)}, mean {number(rewards.mean, 4)}, max {number(rewards.max)}; "
                f"{rewards.nonzero_share:.2%} are not 0",
            )
        )
        for value, count in (rewards.counts or {}).items():
            rows.append((f"  {value.replace('-', '−')}", f"{count:,}"))
    if (found := statistics.priorities) is not None:
        text = f"min {found.min:.4g}, mean {found.mean:.4g}, max {found.max:.4g}"
    else:
        text = "none: drawn uniformly"
    rows.append(("priorities", text))
    total = max(sum(statistics.actions), 1)
    rows.append(("actions", ""))
    for action, count in enumerate(statistics.actions):
        name = names[action] if action < len(names) else str(action)
        label = f"  {action}" if name == str(action) else f"  {action} {name}"
        rows.append((label, f"{count:>9,}  {count / total:6.1%}  {BAR * round(40 * count / total)}"))
    return rows


def _storage(statistics: ReplayStatistics) -> str:
    storage = statistics.storage
    metadata = f"{storage.metadata_bytes_per_transition:,.1f} of all else"
    if storage.bytes_per_transition is None or storage.frame_bytes_per_transition is None:
        return f"{metadata} per transition when full, no chunk of frames is complete yet ({storage.codec})"
    return (
        f"{storage.bytes_per_transition:,.1f} bytes per transition when full: "
        f"{storage.frame_bytes_per_transition:,.1f} of frames ({storage.codec}), {metadata}"
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
