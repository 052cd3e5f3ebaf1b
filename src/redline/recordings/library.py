"""The recordings of a run: what there is, what is damaged, and which records an episode needs to be played again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from redline.recordings.episode import EPISODE, Address, RecordedEpisode, RecordingError, decode_episode
from redline.recordings.setting import SETTING, Setting, decode_setting
from redline.runs.blocks import Block, Damage, iterate_blocks, read_block
from redline.runs.directory import RECORDINGS
from redline.types import Array

PLAYED = "played.rec"


@dataclass(frozen=True, slots=True)
class Entry:
    """A recorded episode without its actions, and where the record is."""

    index: int  # among all entries, in the order in which they were written
    address: Address
    setting: int  # index of the one it was played with
    path: Path  # of the file that holds it
    offset: int  # of its block there
    steps: int  # of the run, when it ended
    unix_s: float
    length_steps: int
    total_reward: float
    is_truncated: bool
    actions_from: int
    evaluation: int | None
    weights_steps: int | None
    has_values: bool

    @property
    def end_steps(self) -> int:
        """Steps from the key to the episode's end."""
        return self.address.key_offset_steps + self.length_steps


@dataclass
class Library:
    """All recordings of one run; actions and values are read when they are asked for."""

    paths: tuple[Path, ...]
    settings: list[Setting] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)  # one line each
    torn_tail: str | None = None  # what was being written when the writer was killed; no damage
    _by_address: dict[Address, int] = field(default_factory=dict)
    _by_lane: dict[tuple[str, int, int], list[int]] = field(default_factory=dict)

    def find(self, address: Address) -> Entry | None:
        """Return the newest recording of an episode; after a resume, an older one may be of another past."""
        index = self._by_address.get(address)
        return None if index is None else self.entries[index]

    def load(self, entry: Entry) -> RecordedEpisode:
        """Read a record whole."""
        block = read_block(entry.path, entry.offset)
        if block is None:
            raise RecordingError(f"the record at byte {entry.offset:,} of {entry.path} is not there any more")
        return decode_episode(block.payload, steps=block.steps)

    def setting_of(self, entry: Entry) -> Setting:
        """Return what an episode was played with."""
        return self.settings[entry.setting]

    def before(self, entry: Entry) -> Entry | None:
        """Return the record whose actions lead up to those of this one; None if it begins at its key."""
        if entry.actions_from == 0:
            return None
        address = entry.address
        for index in reversed(self._by_lane[address.role, address.lane, address.key_seed]):
            if index < entry.index and self.entries[index].end_steps == entry.actions_from:
                return self.entries[index]
        raise RecordingError(
            f"the record before step {entry.actions_from:,} since key seed {address.key_seed} of lane {address.lane} "
            f"is missing"
        )

    def chain(self, entry: Entry) -> list[Entry]:
        """Return the records that lead from the key to the end of this episode, itself the last."""
        chain = [entry]
        while (previous := self.before(chain[-1])) is not None:
            chain.append(previous)
        return chain[::-1]

    def actions_since_key(self, entry: Entry) -> Array:
        """Return all actions from the key to the end of this episode."""
        return np.concatenate([self.load(part).trace.actions for part in self.chain(entry)])

    def add(self, episode: RecordedEpisode, *, path: Path, offset: int) -> None:
        """Take in the next record of the file."""
        trace, address = episode.trace, episode.address
        entry = Entry(
            index=len(self.entries),
            address=address,
            setting=len(self.settings) - 1,
            path=path,
            offset=offset,
            steps=episode.steps,
            unix_s=episode.unix_s,
            length_steps=trace.length_steps,
            total_reward=trace.total_reward,
            is_truncated=trace.is_truncated,
            actions_from=trace.actions_from,
            evaluation=episode.evaluation,
            weights_steps=episode.weights_steps,
            has_values=trace.values is not None,
        )
        self.entries.append(entry)
        self._by_address[address] = entry.index
        self._by_lane.setdefault((address.role, address.lane, address.key_seed), []).append(entry.index)


def recordings_path(run: Path) -> Path:
    """Return where a run records its episodes."""
    return run / RECORDINGS


def played_path(run: Path) -> Path:
    """Return where those are that were played afterwards, by `redline play --policy`."""
    return recordings_path(run).with_name(PLAYED)


def open_library(run: Path) -> Library:
    """Read what a run has recorded so far, and what was played afterwards; empty if that is nothing."""
    library = Library((recordings_path(run), played_path(run)))
    for path in library.paths:
        if path.exists():
            for found in iterate_blocks(path):
                _take_in(library, path, found)
    return library


def _take_in(library: Library, path: Path, found: Block | Damage) -> None:
    if isinstance(found, Damage):
        where = f"{path.name}: {found.length:,} bytes from byte {found.offset:,} on"
        if found.is_tail:
            library.torn_tail = f"{where} are no whole record, probably the last one torn by a crash: skipped"
        else:
            library.damages.append(f"{where} are damaged")
        return
    try:
        if found.kind == SETTING:
            library.settings.append(decode_setting(found.payload))
        elif found.kind == EPISODE:
            if not library.settings:
                raise RecordingError("an episode before any setting")
            library.add(decode_episode(found.payload, steps=found.steps), path=path, offset=found.offset)
    except RecordingError as error:
        library.damages.append(f"{path.name}: the record at byte {found.offset:,}: {error}")


def chains(library: Library, entries: Sequence[Entry]) -> Iterator[tuple[list[Entry], list[Entry] | RecordingError]]:
    """Yield entries in groups that one play from their key covers, each with the records that lead through them."""
    wanted = {entry.index for entry in entries}
    followed: set[int] = set()  # entries that an entry further down the same line passes through
    lines: dict[int, list[Entry]] = {}
    broken: list[tuple[Entry, RecordingError]] = []
    for entry in entries:
        try:
            lines[entry.index] = line = library.chain(entry)
        except RecordingError as error:
            broken.append((entry, error))
            continue
        followed |= {part.index for part in line[:-1]}
    seen: set[int] = set()
    for index, line in lines.items():
        if index not in followed:
            group = [part for part in line if part.index in wanted and part.index not in seen]
            seen |= {part.index for part in group}
            yield group, line
    for entry, reason in broken:
        yield [entry], reason
