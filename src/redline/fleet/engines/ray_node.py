"""What each node of a Ray cluster does for a fleet: it says what it is, and starts runners."""

import json
import os
import platform
import secrets
import subprocess
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from redline import __version__
from redline.errors import UserError
from redline.files import make_folder, open_own, read_bounded, remove_tree, replace_file
from redline.fleet.engines.base import command_of
from redline.fleet.engines.ray_token import MODE, TOKEN_MODE
from redline.fleet.place import is_alive, start_ticks
from redline.fleet.slots import LOGS
from redline.runs.host import usable_cores

POLL_S = 0.5
MAX_PROBE_BYTES = 200
UNANSWERED = "does not answer"  # why a node is left out that may be lost
# the runner is no child of Ray's worker, which takes its children with it, and its session is its own
START = '"$@" >&2 </dev/null & echo $!'


def versions() -> dict[str, str]:
    """Return the versions that must be the same on all machines."""
    found = {"redline": __version__, "python": platform.python_version()}
    for package in ("torch", "ray"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "none"
    return found


def describe(folder: str, probe: str, secret: str) -> str:
    """Return what this node is, as JSON; if a folder is given, prove that it is the one that holds the probe file."""
    facts: dict[str, Any] = {
        "host": platform.node(),
        "versions": versions(),
        "cores": usable_cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "auth_mode": os.environ.get(MODE, ""),
    }
    if folder:
        facts |= _answer(Path(folder), probe, secret)
    return json.dumps(facts)


def _answer(folder: Path, probe: str, secret: str) -> dict[str, str]:
    try:
        is_same = read_bounded(folder / probe, max_bytes=MAX_PROBE_BYTES).decode(errors="replace") == secret
    except (OSError, UserError):
        is_same = False
    if not is_same:
        return {"folder": f"does not see {folder}"}
    answer = f".redline-{secrets.token_hex(8)}.tmp"
    try:
        replace_file(folder / answer, [secret.encode()])
    except (OSError, UserError):
        return {"folder": f"can't write into {folder}"}
    return {"folder": "", "answer": answer}


def problem_of(facts: Mapping[str, Any], folder: Path | None, secret: str) -> str:
    """Return why the machine that asked can't use a node, by what the node told; empty if it can."""
    own = versions()
    for name, number in facts["versions"].items():
        if number != own.get(name):
            return f"has {name} {number}, this machine {own.get(name)}"
    if facts["auth_mode"] != TOKEN_MODE:
        return f"was started without {MODE}={TOKEN_MODE}"
    if folder is None or facts["folder"]:
        return str(facts.get("folder", ""))
    answer = folder / Path(facts["answer"]).name
    try:
        is_same = read_bounded(answer, max_bytes=MAX_PROBE_BYTES).decode(errors="replace") == secret
    except (OSError, UserError):
        is_same = False
    remove_tree(answer)
    return "" if is_same else f"writes into another folder than {folder}"


def train(folder: str, slot: str, threads: int) -> None:
    """Start the runner of a slot, and return when it has ended; it goes on if this process, or Ray, ends before."""
    home = Path(folder)
    log = home / LOGS / f"{slot}.log"
    make_folder(log.parent)
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    own.pop("OMP_NUM_THREADS", None)  # Ray's; a run sets its threads itself
    with os.fdopen(open_own(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "wb") as output:
        said = subprocess.run(
            ["/bin/sh", "-c", START, "sh", *command_of(home, slot, threads)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=output,
            env=own,
            start_new_session=True,
            check=True,
        )
    pid = int(said.stdout)
    if (ticks := start_ticks(pid)) is not None:
        while is_alive(pid, ticks):
            time.sleep(POLL_S)
