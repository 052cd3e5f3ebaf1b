"""The recordings of a run: what exists, what is damaged, which records an episode needs, and the names of episodes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from redline.episodes.episode import (
    EPISODE,
    Address,
    Header,
    Played,
    RecordingError,
    Trace,
    decode_header,
    decode_trace,
)
from redline.episodes.setting import SETTING, Setting, decode_setting
from redline.errors import UserError
from redline.files import explained
from redline.jsonl import SCHEMA, Row, iterate_lines, measured, plain_text
from redline.runs.blocks import Block, Damage, iterate_blocks, read_block
from redline.runs.directory import RECORDINGS
from redline.types import Array

PLAYED = "played.rec"
EPISODES = "episodes.jsonl"
POLICY = "policy"  # role of episodes played by `redline play --policy`
UNKNOWN = -1  # lane, reset seed or offset that a row lacks
LARGEST_COUNT = 2**63

BEST, WORST, LAST = "best", "worst", "last"


@dataclass(frozen=True, slots=True)
class Entry:
    """A recorded episode without its actions, and the place of its record."""

    index: int  # among all entries, in the order of writing
    setting: int  # index of its setting
    path: Path  # of the file that holds it
    offset: int  # of its block there
    steps: int  # of the run, when it ended
    played: Played
    header: Header

    @property
    def address(self) -> Address:
        """Where it began."""
        return Address(self.played.role, self.header.lane, self.header.seed, self.header.seed_offset_steps)


@dataclass
class Library:
    """All recordings of one run; actions and values are read on demand."""

    paths: tuple[Path, ...]
    settings: list[Setting] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)  # one line each
    torn_tail: str | None = None  # a record that is being written, or was when the writer was killed; no damage
    _by_address: dict[Address, int] = field(default_factory=dict)
    _by_end: dict[tuple[str, int, int, int], list[int]] = field(default_factory=dict)  # role, lane, key, end → entries

    def find(self, address: Address) -> Entry | None:
        """Return the newest recording of an episode; an older one, from before a resume, may differ."""
        index = self._by_address.get(address)
        return None if index is None else self.entries[index]

    def load(self, entry: Entry) -> Trace:
        """Read a whole record."""
        block = read_block(entry.path, entry.offset)
        if block is None:
            raise RecordingError(f"the record at byte {entry.offset:,} of {entry.path} is gone")
        return decode_trace(block.payload)

    def setting_of(self, entry: Entry) -> Setting:
        """Return the setting of an episode."""
        return self.settings[entry.setting]

    def before(self, entry: Entry) -> Entry | None:
        """Return the record with the preceding actions; None if this one begins at its seed."""
        actions_from, address = entry.header.actions_from, entry.address
        if actions_from == 0:
            return None
        ending = self._by_end.get((address.role, address.lane, address.reset_seed, actions_from), [])
        if place := bisect_left(ending, entry.index):
            return self.entries[ending[place - 1]]
        missing = f"the record before step {actions_from:,} since seed {address.reset_seed} of lane {address.lane}"
        raise RecordingError(f"{missing} is missing")

    def chain(self, entry: Entry) -> list[Entry]:
        """Return the records from the seeded reset up to this episode."""
        chain = [entry]
        while (previous := self.before(chain[-1])) is not None:
            chain.append(previous)
        return chain[::-1]

    def actions_since_seed(self, entry: Entry) -> Array:
        """Return all actions from the seeded reset to the end of this episode."""
        return np.concatenate([self.load(part).actions for part in self.chain(entry)])

    def add(self, found: Block, path: Path) -> None:
        """Add the next record of a file."""
        played, header, _ = decode_header(found.payload)
        index = len(self.entries)
        entry = Entry(index, len(self.settings) - 1, path, found.offset, found.steps, played, header)
        self.entries.append(entry)
        self._by_address[entry.address] = index
        end = (played.role, header.lane, header.seed, header.end_steps)
        self._by_end.setdefault(end, []).append(index)


def recordings_path(run: Path) -> Path:
    """Return the file of a run's recordings."""
    return run / RECORDINGS


def played_path(run: Path) -> Path:
    """Return the file in which `redline play --policy` records episodes."""
    return recordings_path(run).with_name(PLAYED)


def open_library(run: Path) -> Library:
    """Read what a run has recorded so far and what was played afterwards."""
    library = Library((recordings_path(run), played_path(run)))
    for path in library.paths:
        if path.exists():
            _read_file(library, path)
    return library


def _read_file(library: Library, path: Path) -> None:
    is_set = False  # each file begins with a setting
    for found in iterate_blocks(path):
        if isinstance(found, Damage):
            where = f"{path.name}: {found.length:,} bytes from byte {found.offset:,} on"
            if found.is_torn:
                torn = f"{where} are an incomplete record, which is being written or was cut by a crash; skipped"
                library.torn_tail = torn if library.torn_tail is None else f"{library.torn_tail}; {torn}"
            else:
                library.damages.append(f"{where} are damaged")
            continue
        try:
            if found.kind == SETTING:
                is_set = False
                library.settings.append(decode_setting(found.payload))
                is_set = True
            elif found.kind == EPISODE:
                if not is_set:
                    raise RecordingError("the setting that it was played with can't be read")
                library.add(found, path)
        except RecordingError as error:
            library.damages.append(f"{path.name}: the record at byte {found.offset:,}: {error}")


def chains(library: Library, entries: Sequence[Entry]) -> Iterator[tuple[list[Entry], list[Entry] | RecordingError]]:
    """Yield groups of entries that share one play from a seed, each with the records that lead through them."""
    wanted = {entry.index for entry in entries}
    covered: set[int] = set()
    for entry in sorted(entries, key=lambda entry: entry.index, reverse=True):  # ends of chains first
        if entry.index in covered:
            continue
        try:
            line = library.chain(entry)
        except RecordingError as error:
            yield [entry], error
            continue
        group = [part for part in line if part.index in wanted and part.index not in covered]
        covered |= {part.index for part in group}
        yield group, line


@dataclass(frozen=True)
class Listed:
    """An episode of a run, recorded or not."""

    id: str  # number of its row, from 1 on; "p1", "p2", … if it was played afterwards
    role: str  # "actor", "greedy" or "policy"
    steps: int  # of the run, when it ended
    total_reward: float  # unclipped
    length_steps: int
    lane: int  # −1 if unknown, like the next two
    reset_seed: int
    seed_offset_steps: int
    unix_s: float  # 0 if unknown
    evaluation: int | None  # number of its evaluation
    weights_steps: int | None  # steps of the run that trained the weights, if not the newest
    entry: Entry | None  # its recording, if there is one


@dataclass(frozen=True)
class Catalogue:
    """All episodes of a run, and how many rows were unusable."""

    listed: list[Listed]
    num_unusable: int  # lines that are not rows, or lack a required field


def list_episodes(run: Path, library: Library) -> list[Listed]:
    """Return the episodes in the order of their rows, then those played afterwards."""
    return read_catalogue(run, library).listed


def read_catalogue(run: Path, library: Library) -> Catalogue:
    """Read the rows of a run's episodes, which anybody may have written, and find their recordings."""
    listed: list[Listed] = []
    num_unusable = 0
    for number, row in _numbered_rows(run / EPISODES):
        found = None if row is None else _listed(number, row, library)
        if found is None:
            num_unusable += 1
        else:
            listed.append(found)
    played = [entry for entry in library.entries if entry.played.role == POLICY]
    listed += [_listed_without_row(f"p{number}", entry) for number, entry in enumerate(played, start=1)]
    return Catalogue(listed, num_unusable)


def select(listed: Sequence[Listed], word: str) -> Listed:
    """Return the recorded episode that a word names: best, worst, last, or an id."""
    recorded = [episode for episode in listed if episode.entry is not None]
    if not recorded:
        reason = f"of {len(listed):,} episodes none is recorded" if listed else "no episode has ended yet"
        raise UserError(f"{reason}: train with --record all, or play one with redline play RUN --policy")
    if word in (BEST, WORST):
        choose = max if word == BEST else min
        # the newest of equal ones: it has learnt most
        return choose(reversed(recorded), key=lambda episode: episode.total_reward)
    if word == LAST:  # the last row, or an episode played afterwards: the clock decides between these two
        ends = {episode.role == POLICY: episode for episode in recorded}
        return max(ends.values(), key=lambda episode: episode.unix_s)
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


def _numbered_rows(path: Path) -> Iterator[tuple[int, Row | None]]:
    """Yield every row with its number, and None for a complete line that is not a row."""
    if not path.is_file():  # a pipe would block
        return
    number = 0
    with explained(UserError, path, before="the episodes can't be read: "):
        for line, row in iterate_lines(path):
            number += row is not None
            if row is not None or line.endswith(b"\n"):  # a torn last line may still be being written
                yield number, row


def _listed(number: int, row: Row, library: Library) -> Listed | None:
    """Return the episode of a row; None where return, length or step of the run is missing."""
    total_reward = measured(row.get("return"))
    steps, length_steps = _count(row, "steps"), _count(row, "length_steps")
    if row.get("schema", SCHEMA) != SCHEMA or total_reward is None or steps is None or length_steps is None:
        return None
    told = row.get("role")
    role = plain_text(told) if isinstance(told, str) else "actor"
    place = [_count(row, key) for key in ("lane", "seed", "seed_offset_steps")]
    lane, reset_seed, offset = (UNKNOWN if value is None else value for value in place)
    entry = library.find(Address(role, lane, reset_seed, offset))
    if entry is not None and entry.header.length_steps != length_steps:
        entry = None  # from before a resume that went another way
    return Listed(
        id=str(number),
        role=role,
        steps=steps,
        total_reward=float(total_reward),
        length_steps=length_steps,
        lane=lane,
        reset_seed=reset_seed,
        seed_offset_steps=offset,
        unix_s=float(measured(row.get("unix_s")) or 0.0),
        evaluation=_count(row, "evaluation"),
        weights_steps=_count(row, "weights_steps"),
        entry=entry,
    )


def _listed_without_row(identity: str, entry: Entry) -> Listed:
    played, header = entry.played, entry.header
    return Listed(
        id=identity,
        role=played.role,
        steps=entry.steps,
        total_reward=header.total_reward,
        length_steps=header.length_steps,
        lane=header.lane,
        reset_seed=header.seed,
        seed_offset_steps=header.seed_offset_steps,
        unix_s=played.unix_s,
        evaluation=played.evaluation,
        weights_steps=played.weights_steps,
        entry=entry,
    )


def _count(row: Row, key: str) -> int | None:
    """Return a field that counts something, None for anything else."""
    value = measured(row.get(key))
    return int(value) if value is not None and 0 <= value < LARGEST_COUNT and value == int(value) else None
