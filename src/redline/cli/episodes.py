"""`redline episodes RUN`: the episodes of a run, sorted and filtered, and which of them are recorded."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from redline.cli.output import give, is_plain, print_table, progress_bar, warn
from redline.cli.parsing import Json, Plain, Run, parse
from redline.episodes.library import UNKNOWN, Catalogue, Library, Listed, open_library, read_catalogue
from redline.errors import UserError, check_range, unknown_name
from redline.files import explained
from redline.jsonl import plain_text
from redline.runs.locating import is_recorded, locate_run
from redline.units import size

EXAMPLE = "redline episodes runs/pong/dqn/20260101-120000-s1"
ROLES = ("actor", "greedy", "policy")
USUAL_LIMIT = 20
MAX_DAMAGES = 5  # that are named

# equal episodes keep the order of the list
KEYS: dict[str, Callable[[Listed], float]] = {
    "steps": lambda episode: episode.steps,
    "return": lambda episode: episode.total_reward,
    "length": lambda episode: episode.length_steps,
    "id": lambda episode: 0.0,
}
# the flags that give the least and the largest value → the value
RANGES: dict[tuple[str, str], Callable[[Listed], float]] = {
    ("min_return", "max_return"): KEYS["return"],
    ("min_length", "max_length"): KEYS["length"],
    ("from_step", "to_step"): KEYS["steps"],
}
LARGEST_OF = {"steps": "newest", "return": "best", "length": "longest", "id": "last"}


@dataclass(frozen=True)
class EpisodesFlags:
    """List the episodes of a run. The run is only read, and may still train."""

    run: Run
    sort: Literal["steps", "return", "length", "id"] = "steps"
    """Sort by step of the run, return, length or id; the largest comes last."""
    reverse: bool = False
    """Put the largest first."""
    role: str | None = None
    """Only episodes of this role: actor (training), greedy (evaluations) or policy (redline play --policy)."""
    min_return: float | None = None
    """Only episodes with at least this return."""
    max_return: float | None = None
    """Only episodes with at most this return."""
    min_length: int | None = None
    """Only episodes of at least this many steps."""
    max_length: int | None = None
    """Only episodes of at most this many steps."""
    from_step: int | None = None
    """Only episodes that ended at this step of the run or later."""
    to_step: int | None = None
    """Only episodes that ended at this step of the run or earlier."""
    recorded: bool = False
    """Only recorded episodes."""
    limit: int | None = None
    """How many to list, the last of the sorted list; 0 for all. By default 20, with --json all."""
    plain: Plain = False
    json: Json = False

    def __post_init__(self) -> None:
        if self.role is not None and self.role not in ROLES:
            raise unknown_name("role", self.role, ROLES)
        for low_name, high_name in RANGES:
            self._check_range(low_name, high_name)
        if self.limit is not None:
            check_range("limit", self.limit, 0, use="1 or more, or 0 for all")

    def _check_range(self, *names: str) -> None:
        flags, values = [f"--{name.replace('_', '-')}" for name in names], [getattr(self, name) for name in names]
        for flag, value in zip(flags, values, strict=True):
            if value is not None and math.isnan(value):
                raise UserError(f"{flag} is nan: use a number")
        if None not in values and values[0] > values[1]:
            above = f"{flags[0]} {values[0]:g} is above {flags[1]} {values[1]:g}"
            raise UserError(f"{above}, so no episode matches: exchange them")


def run(args: Sequence[str]) -> int:
    flags = parse(EpisodesFlags, args, prog="redline episodes")
    path = check_run(locate_run(flags.run))
    with progress_bar("reading the episodes", plain=is_plain(flags)) as progress:
        library = read_library(path)
        progress(0.7)  # recordings take longer to read than rows
        catalogue = read_catalogue(path, library)
    if count := catalogue.num_unusable:
        warn([f"{count:,} lines of episodes.jsonl are not episodes and are left out"])
    warn(problems_of(library))
    matching = [episode for episode in catalogue.listed if matches(episode, flags)]
    shown = arrange(matching, flags)
    facts = facts_of(path, catalogue, library, num_matching=len(matching), shown=shown)
    return give(facts, flags, partial(show, sort=flags.sort))


def check_run(path: Path) -> Path:
    """Return the path if it is a run directory; refuse anything else."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise UserError(f"{path} {what}: name a run directory, such as {EXAMPLE}")
    if not is_recorded(path):
        raise UserError(f"{path} is not a run directory: it holds neither run.json nor episodes.jsonl")
    return path


def read_library(run: Path) -> Library:
    """Read the recordings of a run; UserError if that fails."""
    with explained(UserError, run, before="the recordings can't be read: "):
        return open_library(run)


def problems_of(library: Library) -> list[str]:
    """Return what is damaged in the recordings, a line each, the first few of many."""
    lines = library.damages[:MAX_DAMAGES]
    if len(library.damages) > MAX_DAMAGES:
        lines.append(f"and {len(library.damages) - MAX_DAMAGES:,} more damaged records")
    return lines + ([library.torn_tail] if library.torn_tail else [])


def matches(episode: Listed, flags: EpisodesFlags) -> bool:
    for names, value_of in RANGES.items():
        low, high = (getattr(flags, name) for name in names)
        value = value_of(episode)
        if (low is not None and value < low) or (high is not None and value > high):
            return False
    return (flags.role is None or episode.role == flags.role) and (episode.entry is not None or not flags.recorded)


def arrange(matching: Sequence[Listed], flags: EpisodesFlags) -> list[Listed]:
    """Return the largest episodes in the order that the flags ask for."""
    limit = flags.limit if flags.limit is not None else 0 if flags.json else USUAL_LIMIT
    largest = sorted(matching, key=KEYS[flags.sort])[-limit:]  # 0: all
    return largest[::-1] if flags.reverse else largest


def facts_of(
    path: Path, catalogue: Catalogue, library: Library, *, num_matching: int, shown: Sequence[Listed]
) -> dict[str, Any]:
    return {
        "run": path,
        "num_episodes": len(catalogue.listed),
        "num_recorded": sum(episode.entry is not None for episode in catalogue.listed),
        "num_matching": num_matching,
        "shown": len(shown),
        "recordings_bytes": sum(path.stat().st_size for path in library.paths if path.is_file()),
        "unusable_rows": catalogue.num_unusable,
        "damages": [plain_text(text) for text in library.damages],
        "torn_tail": library.torn_tail,
        "episodes": [episode_facts(episode) for episode in shown],
    }


def episode_facts(episode: Listed) -> dict[str, Any]:
    entry = episode.entry
    return {
        "id": episode.id,
        "role": episode.role,
        "steps": episode.steps,
        "return": episode.total_reward,
        "length_steps": episode.length_steps,
        "lane": _known(episode.lane),
        "key_seed": _known(episode.reset_seed),
        "key_offset_steps": _known(episode.seed_offset_steps),
        "unix_s": episode.unix_s,
        "evaluation": episode.evaluation,
        "weights_steps": episode.weights_steps,
        "recorded": entry is not None,
        "truncated": None if entry is None else entry.header.truncated,
        "has_values": None if entry is None else entry.header.values_per_step > 0,
    }


def _known(value: int) -> int | None:
    return None if value == UNKNOWN else value


def show(facts: Mapping[str, Any], *, sort: str, plain: bool) -> None:
    """Print a table of the episodes, their number, and the size of the recordings."""
    total, matching, recorded = facts["num_episodes"], facts["num_matching"], facts["num_recorded"]
    shown = facts["shown"]
    if shown:
        head = ("id", "role", "step", "return", "length", "lane", "key seed", "recorded")
        rows = [_cells(episode) for episode in facts["episodes"]]
        print_table(head, rows, plain=plain, numeric=(0, 2, 3, 4, 5, 6))
    if shown < matching:
        counted = f"the {LARGEST_OF[sort]} {shown:,} of {matching:,} episodes (--limit 0 lists all)"
    else:
        counted = f"{matching:,} episode{'s' * (matching != 1)}"
    if matching < total:
        counted += f", {total:,} without the filter"
    told = f"{recorded:,} recorded in {size(facts['recordings_bytes'])}" if recorded else "none is recorded"
    print(f"{counted}; {told}" if total else "no episode has ended yet")


def _cells(episode: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        episode["id"],
        plain_text(episode["role"]),
        f"{episode['steps']:,}",
        short_return(episode["return"]),
        f"{episode['length_steps']:,}",
        *("–" if value is None else str(value) for value in (episode["lane"], episode["key_seed"])),
        "with values" if episode["has_values"] else "yes" if episode["recorded"] else "no",
    )


def short_return(value: float) -> str:
    """Return a return without needless digits, with a true minus sign."""
    text = f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:,.6g}"
    return text.replace("-", "−")
