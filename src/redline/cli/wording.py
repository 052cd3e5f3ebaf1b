"""Numbers as people read them, and commands as their shell takes them."""

import shlex
import shutil
import sys
from pathlib import Path

NAME = "redline"


def duration(seconds: float) -> str:
    """Return a time span in its two largest units."""
    minutes, hours, days = seconds / 60, seconds / 3600, seconds / 86400
    if seconds < 60:
        return f"{seconds:.0f} s"
    if minutes < 60:
        return f"{int(minutes)} min {int(seconds % 60):02d} s"
    if hours < 48:
        return f"{int(hours)} h {int(minutes % 60):02d} min"
    return f"{int(days)} d {int(hours % 24):02d} h"


def size(count_bytes: float, digits: int = 2) -> str:
    """Return bytes in decimal units."""
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count_bytes >= limit:
            return f"{count_bytes / limit:.{digits}f} {unit}"
    return f"{count_bytes:.0f} B"


def number(value: float | None, digits: int = 2) -> str:
    """Return a number with a true minus sign, or a dash where there is none yet."""
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def rate(value: float) -> str:
    """Return a rate with three significant digits at least."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def command(*words: object) -> str:
    """Return a command of this program that works as it is printed, also where `redline` is not on the PATH."""
    return shlex.join([_program(), *map(str, words)])


def typed_env(env_id: str) -> list[str]:
    """Return the flag without which a command would be refused, where an env's id names a module."""
    return ["--env", env_id] if ":" in env_id else []


def _program() -> str:
    """Return the path by which the program was started, its bare name if a shell finds it by that."""
    started, found = Path(sys.argv[0]), shutil.which(NAME)
    if started.name != NAME or not started.is_file() or (found is not None and started.samefile(found)):
        return NAME
    here = Path.cwd()
    return str(started.absolute().relative_to(here) if started.absolute().is_relative_to(here) else started)
