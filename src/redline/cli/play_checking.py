"""`redline play RUN --verify`: recordings are played again and compared with what was recorded, bit for bit."""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from redline.cli.main import DONE, FAILED, refuse
from redline.cli.stopping import StopRequest
from redline.cli.tables import progress_bar
from redline.cli.wording import duration
from redline.recordings.library import Entry, Library, Listed
from redline.recordings.verifying import StoppedWhileVerifyingError, Verdict, verify
from redline.records import plain_text
from redline.runtime.roles import usable_cores

MAX_LINES = 20
MAX_DAMAGES = 5


@dataclass(frozen=True)
class Checked:
    """What came of a check."""

    run: Path
    verdicts: list[Verdict]
    ids: dict[int, str]  # of the entries that are listed under one
    damages: list[str]
    torn_tail: str | None
    differences: list[str]
    duration_s: float

    @property
    def mismatches(self) -> list[Verdict]:
        """Episodes that did not come back."""
        return [verdict for verdict in self.verdicts if verdict.mismatch is not None]

    @property
    def steps(self) -> int:
        """Steps of all episodes that were compared."""
        return sum(verdict.entry.length_steps for verdict in self.verdicts)

    @property
    def has_passed(self) -> bool:
        """Whether everything that was recorded is there and comes back."""
        return bool(self.verdicts) and not self.mismatches and not self.damages

    def name_of(self, entry: Entry) -> str:
        """Return the episode's id and where it began."""
        at = entry.address
        where = f"{plain_text(at.role)}, lane {at.lane}, seed {at.reset_seed}, {at.seed_offset_steps:,} steps after it"
        return f"episode {self.ids[entry.index]} ({where})" if entry.index in self.ids else f"an episode ({where})"


def problems_of(library: Library) -> list[str]:
    """Return what in the recordings can't be used, a line each; of very many damages the first."""
    lines = library.damages[:MAX_DAMAGES]
    if len(library.damages) > MAX_DAMAGES:
        lines.append(f"and {len(library.damages) - MAX_DAMAGES:,} more damaged records")
    return lines + ([library.torn_tail] if library.torn_tail else [])


def differences_of(library: Library, entries: Sequence[Entry]) -> list[str]:
    """Return what is not as it was when these were recorded, a line each."""
    used = dict.fromkeys(entry.setting for entry in entries)
    return list(dict.fromkeys(line for place in used for line in library.settings[place].differences()))


def warn(lines: Sequence[str]) -> None:
    """Say on stderr what a reader should know; files tell it, which anybody may have written."""
    for line in lines:
        print(f"redline: warning: {plain_text(line)}", file=sys.stderr)


def check_recordings(
    run: Path, library: Library, listed: Sequence[Listed], *, named: Listed | None, plain: bool, as_json: bool
) -> int:
    """Check all recordings, or the one named, and return the exit code."""
    entries = library.entries if named is None else [named.entry] if named.entry is not None else []
    differences = differences_of(library, entries)
    warn([*differences, *problems_of(library)])
    begun_s = time.monotonic()
    what = "an episode" if len(entries) == 1 else f"{len(entries):,} episodes"
    try:
        with StopRequest() as stop, progress_bar(f"playing {what} again", plain=plain) as progress:
            verdicts = verify(library, entries, threads=usable_cores(), progress=progress, requested_stop=stop.reason)
    except StoppedWhileVerifyingError as stopped:
        return refuse(f"{stopped}: nothing is said of the rest", as_json=as_json, code=FAILED)
    checked = Checked(
        run=run,
        verdicts=verdicts,
        ids={one.entry.index: one.id for one in listed if one.entry is not None},
        damages=library.damages,
        torn_tail=library.torn_tail,
        differences=differences,
        duration_s=time.monotonic() - begun_s,
    )
    if as_json:
        print(json.dumps(to_json(checked)))
    else:
        show(checked)
    return DONE if checked.has_passed else FAILED


def to_json(checked: Checked) -> dict[str, object]:
    """Return everything as one plain object."""
    return {
        "schema": 1,
        "run": str(checked.run),
        "episodes": len(checked.verdicts),
        "verified": len(checked.verdicts) - len(checked.mismatches),
        "mismatches": [
            {
                "id": checked.ids.get(verdict.entry.index),
                "role": plain_text(verdict.entry.address.role),
                "lane": verdict.entry.address.lane,
                "seed": verdict.entry.address.reset_seed,
                "seed_offset_steps": verdict.entry.address.seed_offset_steps,
                "what": plain_text(verdict.mismatch),
            }
            for verdict in checked.mismatches
        ],
        "damages": [plain_text(line) for line in checked.damages],
        "torn_tail": checked.torn_tail,
        "differences": [plain_text(line) for line in checked.differences],
        "steps": checked.steps,
        "duration_s": checked.duration_s,
    }


def show(checked: Checked) -> None:
    """Print what came of it."""
    mismatches = checked.mismatches
    for verdict in mismatches[:MAX_LINES]:
        print(f"{checked.name_of(verdict.entry)}: {plain_text(verdict.mismatch)}")
    if len(mismatches) > MAX_LINES:
        print(f"and {len(mismatches) - MAX_LINES:,} more that differ")
    if not checked.verdicts:
        print(f"{checked.run}: no episode is recorded: nothing was checked")
        return
    count, total = len(checked.verdicts) - len(mismatches), len(checked.verdicts)
    took = f"{checked.steps:,} steps, in {duration(checked.duration_s)}"
    print(f"{checked.run}: {count:,} of {total:,} episodes came back bit for bit ({took})")
    if checked.damages:
        print(f"{len(checked.damages):,} record{'s are' if len(checked.damages) > 1 else ' is'} damaged")
