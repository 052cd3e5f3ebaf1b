"""`redline replay inspect RUN`: look inside the replay memory of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from redline.cli.output import give, is_plain, print_facts, progress_bar, warn, write_sheet
from redline.cli.parsing import Json, Plain, Run, RunEnv, parse, run_subject
from redline.cli.saved_replay import draw_transitions, read_replay, replay_statistics
from redline.envs.catalog import resolve
from redline.episodes.sheet import draw_transition_sheet
from redline.errors import UserError, check_range, check_seed
from redline.runs.locating import locate_run
from redline.runtime.resuming import check_env, read_run
from redline.units import number

MAX_SAMPLES = 200
BAR = "█"


@dataclass(frozen=True)
class InspectFlags:
    """Print what the replay memory of a run holds, and draw a contact sheet of it. The run is only read."""

    run: Run
    checkpoint: int | None = None
    """Steps of the checkpoint to look into; the newest valid one if not given."""
    samples: int = 12
    """Transitions on the contact sheet, drawn uniformly."""
    seed: int = 0
    """Seed of the draw."""
    out: Path | None = None
    """PNG to write; replay-<run>.png in the current folder if not given."""
    env: RunEnv = None
    plain: Plain = False
    json: Json = False

    def __post_init__(self) -> None:
        check_range("samples", self.samples, 1, MAX_SAMPLES)
        check_seed(self.seed)


def run(args: Sequence[str]) -> int:
    return run_subject("replay", args, SUBJECTS)


def inspect(args: Sequence[str]) -> int:
    flags = parse(InspectFlags, args, prog="redline replay inspect")
    path = locate_run(flags.run)
    if flags.env is not None:
        check_env(read_run(path), flags.env)
    with progress_bar("reading the replay memory", plain=is_plain(flags)) as progress:
        replay = read_replay(path, steps=flags.checkpoint, progress=progress)
    out = find_out(path, flags.out)
    warn(replay.checkpoint.skipped)
    num_actions = replay.spec.num_actions
    statistics = replay_statistics(
        replay.memory, num_actions=num_actions, codec=replay.codec, priorities=replay.priorities
    )
    names = resolve(replay.run.job.env.id).action_names(num_actions)
    samples = draw_transitions(replay.memory, flags.samples, np.random.default_rng(flags.seed))
    sheet = draw_transition_sheet(
        samples,
        title=f"{replay.spec.name} · {replay.run.algorithm} · {path.resolve().name}",
        subtitle=f"step {replay.checkpoint.steps:,} · {describe_fill(statistics['fill'])} · "
        f"{len(samples)} drawn uniformly, seed {flags.seed}",
        action_names=names,
    )
    write_sheet(sheet, out, "--out")
    replay.memory.close()
    facts = {
        "run": replay.run.path,
        "checkpoint_steps": replay.checkpoint.steps,
        "skipped": list(replay.checkpoint.skipped),
        "env": replay.spec.name,
        "action_names": list(names),
        **statistics,
        "sheet": out,
        "sheet_samples": len(samples),
    }
    return give(facts, flags, show)


SUBJECTS = {"inspect": (inspect, "count what the memory holds, and draw some of it")}


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


def describe_fill(fill: Mapping[str, int]) -> str:
    held, capacity = fill["transitions"], fill["capacity"]
    return f"{held:,} of {capacity:,} transitions ({held / capacity:.0%})"


def show(found: Mapping[str, Any], *, plain: bool) -> None:
    print(f"{found['run']}: replay memory at step {found['checkpoint_steps']:,}")
    fill, endings = found["fill"], found["endings"]
    facts = [
        ("fill", f"{describe_fill(fill)}, {fill['sampleable']:,} can be drawn"),
        ("storage", _storage(found["storage"])),
        ("lanes", f"{fill['lanes']:,} hold transitions, {fill['lanes_being_written']:,} are being written"),
        (
            "episodes",
            f"{endings['episodes']:,} ended: {endings['terminated']:,} terminated, {endings['truncated']:,} truncated "
            f"or cut; {endings['lives_lost']:,} lives lost besides",
        ),
        ("mean length", f"{number(endings['mean_length_steps'], 1)} steps"),
        (
            "mean return",
            f"{number(endings['mean_return'])} over {endings['whole_episodes']:,} whole episodes, unclipped",
        ),
        *_rewards(found),
        ("priorities", _priorities(found["priorities"])),
        ("actions", ""),
        *_actions(found, plain=plain),
    ]
    print_facts(facts, plain=plain)
    print(f"contact sheet of {found['sheet_samples']} transitions: {found['sheet']}")


def _storage(storage: Mapping[str, Any]) -> str:
    whole, frames, codec = (storage[key] for key in ("bytes_per_transition", "frame_bytes_per_transition", "codec"))
    metadata = f"{storage['metadata_bytes_per_transition']:,.1f} of all else"
    if whole is None:
        return f"{metadata} per transition when full, no chunk of frames is complete yet ({codec})"
    return f"{whole:,.1f} bytes per transition when full: {frames:,.1f} of frames ({codec}), {metadata}"


def _rewards(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    if found["rewards"] is None:
        return []
    rewards, (low, high) = found["rewards"], found["step_range"]
    spread = f"min {number(rewards['min'])}, mean {number(rewards['mean'], 4)}, max {number(rewards['max'])}"
    return [
        ("step in episode", f"{low:,} to {high:,}"),
        ("reward", f"{spread}; {rewards['nonzero_share']:.2%} are not 0"),
        *((f"  {value.replace('-', '−')}", f"{count:,}") for value, count in (rewards["counts"] or {}).items()),
    ]


def _priorities(spread: Mapping[str, float] | None) -> str:
    if spread is None:
        return "none: drawn uniformly"
    return ", ".join(f"{name} {value:.4g}" for name, value in spread.items())


def _actions(found: Mapping[str, Any], *, plain: bool) -> list[tuple[str, str]]:
    names, counts = found["action_names"], found["actions"]
    total, rows = max(sum(counts), 1), []
    for action, count in enumerate(counts):
        name = names[action] if action < len(names) else str(action)
        label = f"  {action}" if name == str(action) else f"  {action} {name}"
        bar = "" if plain else f"  {BAR * round(40 * count / total)}"
        rows.append((label, f"{count:>9,}  {count / total:6.1%}{bar}"))
    return rows
