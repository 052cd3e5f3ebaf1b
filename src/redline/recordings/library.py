"""The recordings of a run: what there is, what is damaged, and which records an episode needs to be played again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from redline.recordings.episode import EPISODE, Address, RecordedEpisode, RecordingError, decode_episode
from redline.recordings.setting import SETTING, Setting, decode_setting
from redline.runs.blocks import Damage, iterate_blocks, read_block
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
    _by_end: dict[tuple[str, int, int, int], list[int]] = field(default_factory=dict)  # role, lane, key, end → entries

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
        ending = self._by_end.get((address.role, address.lane, address.key_seed, entry.actions_from), [])
        if place := bisect_left(ending, entry.index):
            return self.entries[ending[place - 1]]
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
            has_values=episode.has_values,
        )
        self.entries.append(entry)
        self._by_address[address] = entry.index
        end = (address.role, address.lane, address.key_seed, entry.end_steps)
        self._by_end.setdefault(end, []).append(entry.index)


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
            _read_file(library, path)
    return library


def _read_file(library: Library, path: Path) -> None:
    is_set = False  # a setting is in force: each file begins with its own
    for found in iterate_blocks(path):
        if isinstance(found, Damage):
            _note_damage(library, path, found)
            continue
        try:
            if found.kind == SETTING:
                is_set = False
                library.settings.append(decode_setting(found.payload))
                is_set = True
            elif found.kind == EPISODE:
                if not is_set:
                    raise RecordingError("the setting that it was played with can't be read")
                episode = decode_episode(found.payload, steps=found.steps, with_parts=False)
                library.add(episode, path=path, offset=found.offset)
        except RecordingError as error:
            library.damages.append(f"{path.name}: the record at byte {found.offset:,}: {error}")


def _note_damage(library: Library, path: Path, damage: Damage) -> None:
    where = f"{path.name}: {damage.length:,} bytes from byte {damage.offset:,} on"
    if damage.is_torn:
        said = f"{where} are no whole record: it is being written, or was torn by a crash; skipped"
        library.torn_tail = said if library.torn_tail is None else f"{library.torn_tail}; {said}"
    else:
        library.damages.append(f"{where} are damaged")


def chains(library: Library, entries: Sequence[Entry]) -> Iterator[tuple[list[Entry], list[Entry] | RecordingError]]:
    """Yield entries in groups that one play from their key covers, each with the records that lead through them."""
    wanted = {entry.index for entry in entries}
    covered: set[int] = set()
    for entry in sorted(entries, key=lambda entry: entry.index, reverse=True):  # the ends of lines first
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
