"""`redline play RUN --verify`: play recordings again and compare them, bit for bit."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from redline.cli.episodes import problems_of
from redline.cli.main import DONE, FAILED, refuse
from redline.cli.output import print_json, progress_bar, warn
from redline.cli.stopping import StopRequest
from redline.episodes.library import Entry, Library, Listed
from redline.episodes.verifying import StoppedWhileVerifyingError, Verdict, verify
from redline.jsonl import plain_text
from redline.runs.host import usable_cores
from redline.units import duration

MAX_LINES = 20


def differences_of(library: Library, entries: Sequence[Entry]) -> list[str]:
    """Return what has changed since these were recorded, a line each."""
    used = dict.fromkeys(entry.setting for entry in entries)
    return list(dict.fromkeys(line for place in used for line in library.settings[place].differences()))


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
        return refuse(f"{stopped}: the rest was not checked", as_json=as_json, code=FAILED)
    facts = facts_of(run, library, listed, verdicts) | {
        "differences": [plain_text(line) for line in differences],
        "duration_s": time.monotonic() - begun_s,
    }
    if as_json:
        print_json(facts)
    else:
        show(facts)
    has_passed = verdicts and not facts["mismatches"] and not facts["damages"]
    return DONE if has_passed else FAILED


def facts_of(run: Path, library: Library, listed: Sequence[Listed], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the result of a check as a plain object."""
    ids = {one.entry.index: one.id for one in listed if one.entry is not None}
    mismatches = [
        {
            "id": ids.get(verdict.entry.index),
            "role": plain_text(verdict.entry.address.role),
            "lane": verdict.entry.address.lane,
            "seed": verdict.entry.address.reset_seed,
            "seed_offset_steps": verdict.entry.address.seed_offset_steps,
            "what": plain_text(verdict.mismatch),
        }
        for verdict in verdicts
        if verdict.mismatch is not None
    ]
    return {
        "run": run,
        "episodes": len(verdicts),
        "verified": len(verdicts) - len(mismatches),
        "mismatches": mismatches,
        "damages": [plain_text(line) for line in library.damages],
        "torn_tail": library.torn_tail,
        "steps": sum(verdict.entry.header.length_steps for verdict in verdicts),
    }


def show(facts: Mapping[str, Any]) -> None:
    """Print the result."""
    mismatches, damages = facts["mismatches"], facts["damages"]
    for one in mismatches[:MAX_LINES]:
        name = "an episode" if one["id"] is None else f"episode {one['id']}"
        where = f"{one['role']}, lane {one['lane']}, seed {one['seed']}, {one['seed_offset_steps']:,} steps after it"
        print(f"{name} ({where}): {one['what']}")
    if len(mismatches) > MAX_LINES:
        print(f"and {len(mismatches) - MAX_LINES:,} more differ")
    if not facts["episodes"]:
        print(f"{facts['run']}: no episode is recorded: nothing was checked")
        return
    took = f"{facts['steps']:,} steps, in {duration(facts['duration_s'])}"
    print(f"{facts['run']}: {facts['verified']:,} of {facts['episodes']:,} episodes came back bit for bit ({took})")
    if damages:
        print(f"{len(damages):,} record{'s are' if len(damages) > 1 else ' is'} damaged")
