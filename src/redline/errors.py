"""The errors that a user can mend; the command line shows each as one line and exits with code 2."""

import math
import re
from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Bad input or a machine that does not suffice: a fact and a remedy in one line."""


class DamagedError(UserError):
    """A file is missing, cut short or altered: its content cannot be trusted."""


class AlteredError(DamagedError):
    """A file differs from what Redline wrote."""


class ForeignFileError(UserError, OSError):
    """A link, a pipe or a folder stands where a run keeps a file: writing there would change something else."""


class CheckpointError(UserError):
    """A checkpoint could not be saved; the earlier ones are untouched."""


def kind_name(kind: type) -> str:
    """Return the name under which a user knows a kind of part: `OnlineChooses` is online-chooses."""
    return re.sub(r"(?<=[A-Za-z0-9])(?=[A-Z])", "-", kind.__name__).lower()


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return the known names that look most like `name`, best first, whatever their case."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    return [by_lower[match] for match in get_close_matches(name.lower(), by_lower, n=count, cutoff=0.5)]


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error for an unknown name; it lists the nearest names or, if none is near, all of them."""
    names = sorted(known)
    close = nearest(name, names)
    remedy = f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(names[:20])}"
    return UserError(f"unknown {kind} {name!r}: {remedy}")


def check_range(name: str, value: float, low: float, high: float = math.inf, *, use: str = "") -> None:
    """Refuse a number outside these bounds, and NaN; `use` says what to use instead, if not simply the bounds."""
    if not low <= value <= high:
        bounds = f"{low:_} or more" if high == math.inf else f"{low:_} to {high:_}"
        raise UserError(f"{name} is {value}: use {use or bounds}")


def check_positive(name: str, value: float, *, otherwise: str = "") -> None:
    """Refuse a number that is not finite and above 0; `otherwise` is what the error adds."""
    if not 0.0 < value < math.inf:
        raise UserError(f"{name} is {value}: use a finite number above 0{otherwise}")


def check_seed(seed: int) -> None:
    """Refuse a seed that some part does not take."""
    check_range("seed", seed, 0, 2**31 - 1)
