"""The folder of one case, with a tree beside the run that nothing may touch."""

import hashlib
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

WHOLE_BYTES = 1 << 20  # of larger files only size and time are compared
LONG_AGO_S = 1_000_000_000

Listing = dict[str, str]  # path below a folder → what is known of it


@dataclass(frozen=True)
class Place:
    """Where a case happens: the folder that its commands start in, and what they must leave alone."""

    root: Path
    before: dict[str, Listing] = field(default_factory=dict)

    @property
    def cwd(self) -> Path:
        """Folder in which commands start."""
        return self.root / "cwd"

    @property
    def outside(self) -> Path:
        """Tree that nothing may touch."""
        return self.root / "outside"

    @property
    def scratch(self) -> Path:
        """Home and temporary files."""
        return self.root / "scratch"

    def fill(self) -> "Place":
        """Make the folders and the sentinel tree, and remember the latter."""
        for folder in (self.cwd, self.scratch, self.outside / "folder"):
            folder.mkdir(parents=True)
        for name, content in (("file", "untouched\n"), ("rows.jsonl", '{"schema":1}\n'), ("folder/inner", "inner\n")):
            (self.outside / name).write_text(content, encoding="utf-8")
        for path in (*self.outside.rglob("*"), self.outside):
            os.utime(path, (LONG_AGO_S, LONG_AGO_S))
        self.remember(self.outside)
        return self

    def remember(self, folder: Path) -> None:
        """Remember what a folder holds."""
        self.before[str(folder)] = listing(folder)

    def changes(self, folder: Path) -> list[str]:
        """Return what is different since it was remembered."""
        before, now = self.before[str(folder)], listing(folder)
        return [
            _difference(name, before.get(name), now.get(name))
            for name in sorted(before.keys() | now.keys())
            if before.get(name) != now.get(name)
        ]

    def remove(self) -> None:
        """Remove all of it."""
        subprocess.run(["rm", "-rf", str(self.root)], check=False)


def listing(folder: Path) -> Listing:
    """Return type, mode, times and content of everything below a folder, and of itself."""
    return {str(path.relative_to(folder)): _facts(path) for path in (folder, *_walk(folder))}


def _walk(folder: Path) -> Iterator[Path]:
    waiting = [folder]  # no recursion: a run may lie a thousand folders deep
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                path = Path(entry.path)
                yield path
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)


def _facts(path: Path) -> str:
    try:
        found = path.lstat()
    except OSError as error:  # such as a path that is longer than the kernel takes
        return str(error.strerror)
    kind = stat.filemode(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        return f"{kind} → {path.readlink()}"
    if not stat.S_ISREG(found.st_mode):
        return f"{kind} {found.st_mtime_ns}"
    content = hashlib.sha256(path.read_bytes()).hexdigest() if found.st_size <= WHOLE_BYTES else "large"
    return f"{kind} {found.st_size} bytes {found.st_mtime_ns} {content}"


def _difference(name: str, before: str | None, now: str | None) -> str:
    if before is None:
        return f"{name} is new"
    return f"{name} is gone" if now is None else f"{name} was changed"
