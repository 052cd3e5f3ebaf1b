"""The episodes of a run as a reader names them: the rows that it wrote, each beside its recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from redline.errors import UserError
from redline.files import explain
from redline.recordings.episode import Address
from redline.recordings.library import Entry, Library
from redline.records import SCHEMA, Row, iterate_lines, measured, plain_text

EPISODES = "episodes.jsonl"
POLICY = "policy"  # role of the episodes that `redline play --policy` made
UNKNOWN = -1  # lane, key seed or offset that a row does not tell
LARGEST_COUNT = 2**63

BEST, WORST, LAST = "best", "worst", "last"


@dataclass(frozen=True)
class Listed:
    """An episode of a run, whether it can be played again or not."""

    id: str  # number of its row, from 1 on; "p1", "p2", … for those that were played afterwards
    role: str  # who played it: "actor", "greedy" or "policy"
    steps: int  # of the run, when it ended
    total_reward: float  # unclipped
    length_steps: int
    lane: int  # as the two that follow, −1 where the row does not tell
    key_seed: int
    key_offset_steps: int
    unix_s: float  # 0 where the row does not tell
    evaluation: int | None  # number of the evaluation it belongs to
    weights_steps: int | None  # steps of the run at which the weights were taken, if not the newest
    entry: Entry | None  # its recording; None: not recorded


@dataclass(frozen=True)
class Catalogue:
    """All episodes of a run, and how many rows told of none."""

    listed: list[Listed]
    num_unusable: int  # lines that are no row, or a row without what every episode has


def list_episodes(run: Path, library: Library) -> list[Listed]:
    """Return the episodes in the order of their rows, and after them those that were played afterwards."""
    return read_catalogue(run, library).listed


def read_catalogue(run: Path, library: Library) -> Catalogue:
    """Read the rows of a run's episodes, which anybody may have written, and find the recording of each."""
    listed: list[Listed] = []
    num_unusable = 0
    for number, row in _numbered_rows(run / EPISODES):
        found = None if row is None else _listed(number, row, library)
        if found is None:
            num_unusable += 1
        else:
            listed.append(found)
    played = [entry for entry in library.entries if entry.address.role == POLICY]
    listed += [_listed_without_row(f"p{number}", entry) for number, entry in enumerate(played, start=1)]
    return Catalogue(listed, num_unusable)


def select(listed: Sequence[Listed], word: str) -> Listed:
    """Return the recorded episode that a word names: best, worst, last, or an id."""
    recorded = [episode for episode in listed if episode.entry is not None]
    if not recorded:
        reason = f"of {len(listed):,} episodes none is recorded" if listed else "no episode has ended yet"
        raise UserError(f"{reason}: train with --record all, or play one with redline play RUN --policy")
    if word in _CHOICES:
        return _CHOICES[word](recorded)
    found = next((episode for episode in listed if episode.id == word), None)
    if found is None:
        raise UserError(
            f"there is no episode {plain_text(word)!r}: use {BEST}, {WORST}, {LAST} or an id, such as "
            f"{recorded[-1].id} (redline episodes RUN lists them)"
        )
    if found.entry is None:
        raise UserError(
            f"episode {found.id} is not recorded, {len(recorded):,} of {len(listed):,} are: use one of them, such as "
            f"{recorded[-1].id} (redline episodes RUN --recorded lists them)"
        )
    return found


def _best(recorded: Sequence[Listed]) -> Listed:
    # of equals the newest: the agent has learnt most
    return max(reversed(recorded), key=lambda episode: episode.total_reward)


def _worst(recorded: Sequence[Listed]) -> Listed:
    return min(reversed(recorded), key=lambda episode: episode.total_reward)


def _last(recorded: Sequence[Listed]) -> Listed:
    """Return the newest by its place, which no clock can change; only one played afterwards has none among the rest."""
    ends = {episode.role == POLICY: episode for episode in recorded}
    return max(ends.values(), key=lambda episode: episode.unix_s)


_CHOICES: dict[str, Callable[[Sequence[Listed]], Listed]] = {BEST: _best, WORST: _worst, LAST: _last}


def _numbered_rows(path: Path) -> Iterator[tuple[int, Row | None]]:
    """Yield every row with its number, and None for a whole line that is none; nothing where there is no file."""
    if not path.is_file():  # a pipe would block
        return
    number = 0
    try:
        for line, row in iterate_lines(path):
            number += row is not None
            if row is not None or line.endswith(b"\n"):  # a torn last line may be one that is being written
                yield number, row
    except OSError as error:
        raise UserError(f"the episodes can't be read: {explain(error, path)}") from None


def _listed(number: int, row: Row, library: Library) -> Listed | None:
    """Return the episode that a row tells of; None where it does not tell return, length and step of the run."""
    total_reward = measured(row.get("return"))
    steps, length_steps = _count(row, "steps"), _count(row, "length_steps")
    if row.get("schema", SCHEMA) != SCHEMA or total_reward is None or steps is None or length_steps is None:
        return None
    told = row.get("role")
    role = plain_text(told) if isinstance(told, str) else "actor"
    lane, key_seed, offset = _count(row, "lane"), _count(row, "seed"), _count(row, "seed_offset_steps")
    entry = None
    if lane is not None and key_seed is not None and offset is not None:
        entry = library.find(Address(role, lane, key_seed, offset))
    if entry is not None and entry.length_steps != length_steps:
        entry = None  # of another past: a run that was resumed played on from here in another way
    return Listed(
        id=str(number),
        role=role,
        steps=steps,
        total_reward=float(total_reward),
        length_steps=length_steps,
        lane=UNKNOWN if lane is None else lane,
        key_seed=UNKNOWN if key_seed is None else key_seed,
        key_offset_steps=UNKNOWN if offset is None else offset,
        unix_s=float(measured(row.get("unix_s")) or 0.0),
        evaluation=_count(row, "evaluation"),
        weights_steps=_count(row, "weights_steps"),
        entry=entry,
    )


def _listed_without_row(identity: str, entry: Entry) -> Listed:
    address = entry.address
    return Listed(
        id=identity,
        role=address.role,
        steps=entry.steps,
        total_reward=entry.total_reward,
        length_steps=entry.length_steps,
        lane=address.lane,
        key_seed=address.key_seed,
        key_offset_steps=address.key_offset_steps,
        unix_s=entry.unix_s,
        evaluation=entry.evaluation,
        weights_steps=entry.weights_steps,
        entry=entry,
    )


def _count(row: Row, key: str) -> int | None:
    """Return a field that counts something, None for anything else."""
    value = measured(row.get(key))
    return int(value) if value is not None and 0 <= value < LARGEST_COUNT and value == int(value) else None
