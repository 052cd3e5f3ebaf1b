"""`redline episodes RUN`: the episodes of a run, sorted and filtered, and which of them are recorded."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from redline.cli.main import DONE
from redline.cli.output import is_plain, print_json, print_table, progress_bar, warn
from redline.cli.parsing import Json, Plain, Run, parse
from redline.episodes.library import UNKNOWN, Catalogue, Library, Listed, open_library, read_catalogue
from redline.errors import UserError, unknown_name
from redline.files import explain
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
        raise UserError(f"{low_flag} {low:g} is above {high_flag} {high:g}, so no episode matches: exchange them")


def run(args: Sequence[str]) -> int:
    """List as the flags say and return the exit code."""
    flags = parse(EpisodesFlags, args, prog="redline episodes")
    path = check_run(locate_run(flags.run))
    with progress_bar("reading the episodes", plain=is_plain(plain=flags.plain, as_json=flags.json)) as progress:
        try:
            library = open_library(path)
        except OSError as error:
            raise UserError(f"the recordings can't be read: {explain(error, path)}") from None
        progress(0.7)  # recordings take longer to read than rows
        catalogue = read_catalogue(path, library)
    if count := catalogue.num_unusable:
        warn([f"{count:,} lines of episodes.jsonl are no episodes and are left out"])
    warn(problems_of(library))
    matching = [episode for episode in catalogue.listed if matches(episode, flags)]
    shown = arrange(matching, flags)
    facts = facts_of(path, catalogue, library, num_matching=len(matching), shown=shown)
    if flags.json:
        print_json(facts)
    else:
        show(facts, flags)
    return DONE


def check_run(path: Path) -> Path:
    """Return the path if it is a run directory; refuse anything else."""
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise UserError(f"{path} {what}: name a run directory, such as {EXAMPLE}")
    if not is_recorded(path):
        raise UserError(f"{path} is no run directory: it holds neither run.json nor episodes.jsonl")
    return path


def problems_of(library: Library) -> list[str]:
    """Return what is damaged in the recordings, a line each, the first few of many."""
    lines = library.damages[:MAX_DAMAGES]
    if len(library.damages) > MAX_DAMAGES:
        lines.append(f"and {len(library.damages) - MAX_DAMAGES:,} more damaged records")
    return lines + ([library.torn_tail] if library.torn_tail else [])


def matches(episode: Listed, flags: EpisodesFlags) -> bool:
    """Tell whether an episode passes the filters."""
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
    """Return how many episodes to show at most; None for all."""
    if flags.limit is None:
        return None if flags.json else USUAL_LIMIT
    return flags.limit or None


def arrange(matching: Sequence[Listed], flags: EpisodesFlags) -> list[Listed]:
    """Return the largest episodes in the order that the flags ask for."""
    ordered = sorted(matching, key=KEYS[flags.sort])
    limit = limit_of(flags)
    largest = ordered if limit is None else ordered[-limit:]
    return largest[::-1] if flags.reverse else largest


def facts_of(
    path: Path, catalogue: Catalogue, library: Library, *, num_matching: int, shown: Sequence[Listed]
) -> dict[str, Any]:
    """Return everything as one plain object."""
    return {
        "run": path,
        "num_episodes": len(catalogue.listed),
        "num_recorded": sum(episode.entry is not None for episode in catalogue.listed),
        "num_matching": num_matching,
        "shown": len(shown),
        "recordings_bytes": recordings_bytes(library),
        "unusable_rows": catalogue.num_unusable,
        "damages": [plain_text(text) for text in library.damages],
        "torn_tail": library.torn_tail,
        "episodes": [episode_facts(episode) for episode in shown],
    }


def episode_facts(episode: Listed) -> dict[str, Any]:
    """Return an episode as a plain object."""
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


def recordings_bytes(library: Library) -> int:
    """Return the size of the recordings on disk."""
    return sum(path.stat().st_size for path in library.paths if path.is_file())


def show(facts: Mapping[str, Any], flags: EpisodesFlags) -> None:
    """Print a table of the episodes, their number, and the size of the recordings."""
    total, matching, recorded = facts["num_episodes"], facts["num_matching"], facts["num_recorded"]
    shown = facts["shown"]
    if shown:
        head = ("id", "role", "step", "return", "length", "lane", "key seed", "recorded")
        rows = [_cells(episode) for episode in facts["episodes"]]
        print_table(head, rows, plain=is_plain(plain=flags.plain), numeric=(0, 2, 3, 4, 5, 6))
    if shown < matching:
        counted = f"the {LARGEST_OF[flags.sort]} {shown:,} of {matching:,} episodes (--limit 0 lists all)"
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
