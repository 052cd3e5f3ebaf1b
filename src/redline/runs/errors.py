"""What goes wrong with files of a run, said in one line with the remedy."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from redline.errors import UserError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class CheckpointError(UserError):
    """A checkpoint could not be saved; the earlier ones are untouched."""


class DamagedError(UserError):
    """A file is missing, cut short or altered: what it holds cannot be trusted."""


def explain(error: OSError, path: Path) -> str:
    """Name the path and the reason and, where space ran out, the mount and what is free there."""
    reason = f"{path}: {(error.strerror or str(error)).lower()}"
    if error.errno not in FULL:
        return reason
    mount = mount_point(path)
    return f"{reason}; {mount} has {free_bytes(mount) / 1e6:,.1f} MB free: make room or use another --log-dir"


def mount_point(path: Path) -> Path:
    """Return where the file system that holds `path`, or will hold it, is mounted."""
    place = path.absolute()
    while not place.is_mount() and place != place.parent:
        place = place.parent
    return place


def free_bytes(path: Path) -> int:
    """Return how many bytes this user can still write to the file system of an existing `path`."""
    facts = os.statvfs(path)
    return facts.f_bavail * facts.f_frsize
