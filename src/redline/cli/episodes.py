"""`redline episodes RUN`: the episodes of a run, sorted and filtered, and which of them can be played again."""

import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from redline.cli.main import DONE
from redline.cli.parsing import parse, split_run
from redline.cli.tables import is_plain, print_table, progress_bar
from redline.cli.wording import size
from redline.errors import UserError, unknown_name
from redline.recordings.library import UNKNOWN, Catalogue, Library, Listed, open_library, read_catalogue
from redline.records import plain_text
from redline.runs.errors import explain
from redline.runs.locating import is_recorded

PROGRAM = "redline episodes RUN"
EXAMPLE = "redline episodes runs/pong/dqn/20260101-120000-s1"
ROLES = ("actor", "greedy", "policy")
USUAL_LIMIT = 20
DAMAGES_TOLD = 3
DASH = "–"

# of equals, the one that was listed first comes first
KEYS: dict[str, Callable[[Listed], float]] = {
    "steps": lambda episode: episode.steps,
    "return": lambda episode: episode.total_reward,
    "length": lambda episode: episode.length_steps,
    "id": lambda episode: 0.0,
}
LARGEST_OF = {"steps": "newest", "return": "best", "length": "longest", "id": "last"}


@dataclass(frozen=True)
class EpisodesFlags:
    """List the episodes of a run. It is only read, and may be going on."""

    sort: Literal["steps", "return", "length", "id"] = "steps"
    """Order: by step of the run, return, length or id, the largest last."""
    reverse: bool = False
    """The largest first."""
    role: str | None = None
    """Only those played by the actor, the greedy evaluator or, later, a policy: actor, greedy or policy."""
    min_return: float | None = None
    """Only those with at least this return."""
    max_return: float | None = None
    """Only those with at most this return."""
    min_length: int | None = None
    """Only those of at least so many steps."""
    max_length: int | None = None
    """Only those of at most so many steps."""
    from_step: int | None = None
    """Only those that ended at this step of the run or later."""
    to_step: int | None = None
    """Only those that ended at this step of the run or earlier."""
    recorded: bool = False
    """Only those that are recorded."""
    limit: int | None = None
    """How many, those that are largest by the order; 0 for all. By default 20, and all with --json."""
    plain: bool = False
    """Plain text, no drawing."""
    json: bool = False
    """Print the episodes as one JSON object on stdout, and nothing else there."""

    def __post_init__(self) -> None:
        if self.role is not None and self.role not in ROLES:
            raise unknown_name("role", self.role, ROLES)
        for name, low, high in (
            ("return", self.min_return, self.max_return),
            ("length", self.min_length, self.max_length),
        ):
            _check_range(f"--min-{name}", low, f"--max-{name}", high)
        _check_range("--from-step", self.from_step, "--to-step", self.to_step)
        if self.limit is not None and self.limit < 0:
            raise UserError(f"limit is {self.limit}: use 1 or more, or 0 for all")


def _check_range(low_flag: str, low: float | None, high_flag: str, high: float | None) -> None:
    for flag, value in ((low_flag, low), (high_flag, high)):
        if value is not None and math.isnan(value):
            raise UserError(f"{flag} is nan: use a number")
    if low is not None and high is not None and low > high:
        raise UserError(f"{low_flag} {low:g} is above {high_flag} {high:g}, so no episode can be meant: exchange them")


def run(args: Sequence[str]) -> int:
    """List as the flags say and return the exit code."""
    if "--help" in args[:1] or "-h" in args[:1]:
        parse(EpisodesFlags, args, default=EpisodesFlags(), prog=PROGRAM)
    located, rest = split_run(args, "episodes")
    flags = parse(EpisodesFlags, rest, default=EpisodesFlags(), prog=PROGRAM)
    path = check_run(located)
    with progress_bar("reading the episodes", plain=is_plain(plain=flags.plain, as_json=flags.json)) as progress:
        try:
            library = open_library(path)
        except OSError as error:
            raise UserError(f"the recordings can't be read: {explain(error, path)}") from None
        progress(0.7)  # of the time, about: a record takes longer than a row
        catalogue = read_catalogue(path, library)
    for warning in warnings(catalogue, library):
        print(f"redline: warning: {warning}", file=sys.stderr)
    matching = [episode for episode in catalogue.listed if matches(episode, flags)]
    shown = arrange(matching, flags)
    if flags.json:
        print(json.dumps(to_json(path, catalogue, library, num_matching=len(matching), shown=shown), allow_nan=False))
    else:
        show(catalogue, library, num_matching=len(matching), shown=shown, flags=flags)
    return DONE


def check_run(path: Path) -> Path:
    """Return a run directory as it was given; refuse anything else."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise UserError(f"{path} {what}: name a run directory, such as {EXAMPLE}")
    if not is_recorded(path):
        raise UserError(f"{path} is no run directory: it holds neither run.json nor episodes.jsonl")
    return path


def warnings(catalogue: Catalogue, library: Library) -> list[str]:
    """Say in one line each what could not be read."""
    told = []
    if count := catalogue.num_unusable:
        told.append(f"lines of episodes.jsonl that tell of no episode and are left out: {count:,}")
    told += library.damages[:DAMAGES_TOLD]
    if more := len(library.damages) - DAMAGES_TOLD:
        told += [f"{more:,} more places of the recordings are damaged"] if more > 0 else []
    if library.torn_tail is not None:
        told.append(library.torn_tail)
    return [plain_text(text) for text in told]


def matches(episode: Listed, flags: EpisodesFlags) -> bool:
    """Tell whether an episode is one of those that were asked for."""
    return (
        (flags.role is None or episode.role == flags.role)
        and (episode.entry is not None or not flags.recorded)
        and _is_within(episode.total_reward, flags.min_return, flags.max_return)
        and _is_within(episode.length_steps, flags.min_length, flags.max_length)
        and _is_within(episode.steps, flags.from_step, flags.to_step)
    )


def _is_within(value: float, low: float | None, high: float | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)


def limit_of(flags: EpisodesFlags) -> int | None:
    """Return how many are shown at most, None for all."""
    if flags.limit is None:
        return None if flags.json else USUAL_LIMIT
    return flags.limit or None


def arrange(matching: Sequence[Listed], flags: EpisodesFlags) -> list[Listed]:
    """Return the largest of them, in the order that was asked for."""
    ordered = sorted(matching, key=KEYS[flags.sort])  # by id: as they are listed
    limit = limit_of(flags)
    largest = ordered if limit is None else ordered[-limit:]
    return largest[::-1] if flags.reverse else largest


def to_json(
    path: Path, catalogue: Catalogue, library: Library, *, num_matching: int, shown: Sequence[Listed]
) -> dict[str, object]:
    """Return everything as one plain object."""
    return {
        "schema": 1,
        "run": str(path),
        "num_episodes": len(catalogue.listed),
        "num_recorded": sum(episode.entry is not None for episode in catalogue.listed),
        "num_matching": num_matching,
        "shown": len(shown),
        "recordings_bytes": recordings_bytes(library),
        "unusable_rows": catalogue.num_unusable,
        "damages": [plain_text(text) for text in library.damages],
        "torn_tail": library.torn_tail,
        "episodes": [_to_json(episode) for episode in shown],
    }


def _to_json(episode: Listed) -> dict[str, object]:
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
        "truncated": None if entry is None else entry.is_truncated,
        "has_values": None if entry is None else entry.has_values,
    }


def _known(value: int) -> int | None:
    return None if value == UNKNOWN else value


def recordings_bytes(library: Library) -> int:
    """Return what the recordings take on the disk."""
    total = 0
    for path in library.paths:
        try:
            total += path.stat().st_size
        except OSError:  # there is none
            continue
    return total


def show(
    catalogue: Catalogue, library: Library, *, num_matching: int, shown: Sequence[Listed], flags: EpisodesFlags
) -> None:
    """Print a table, how many there are, and what they take."""
    total = len(catalogue.listed)
    if shown:
        head = ("id", "role", "step", "return", "length", "lane", "key seed", "recorded")
        rows = [_cells(episode) for episode in shown]
        print_table(head, rows, plain=is_plain(plain=flags.plain, as_json=False), numeric=(0, 2, 3, 4, 5, 6))
    num_recorded = sum(episode.entry is not None for episode in catalogue.listed)
    if len(shown) < num_matching:
        counted = f"the {LARGEST_OF[flags.sort]} {len(shown):,} of {num_matching:,} episodes (--limit 0 lists all)"
    else:
        counted = f"{num_matching:,} episode{'s' * (num_matching != 1)}"
    if num_matching < total:
        counted += f", {total:,} without the filter"
    told = f"{num_recorded:,} recorded in {size(recordings_bytes(library))}" if num_recorded else "none is recorded"
    print(f"{counted}; {told}" if total else "no episode has ended yet")


def _cells(episode: Listed) -> tuple[str, ...]:
    return (
        episode.id,
        plain_text(episode.role),
        f"{episode.steps:,}",
        return_in_words(episode.total_reward),
        f"{episode.length_steps:,}",
        *(DASH if value == UNKNOWN else str(value) for value in (episode.lane, episode.reset_seed)),
        "no" if episode.entry is None else "with values" if episode.entry.has_values else "yes",
    )


def return_in_words(value: float) -> str:
    """Return a return as short as it can be said, with a true minus sign."""
    text = f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else f"{value:,.6g}"
    return text.replace("-", "−")
