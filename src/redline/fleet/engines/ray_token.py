"""The token of a Ray cluster. Ray runs whatever code it is sent: without a token, that of anybody on the network."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from redline.errors import UserError
from redline.files import explained, open_regular

MODE, VALUE, FILE = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
TOKEN_MODE = "token"  # noqa: S105  (Ray's name for it)
USUAL_FILE = Path(".ray") / "auth_token"  # in the home folder
MAX_TOKEN_BYTES = 4_096
OWNER_ONLY = 0o600
MAKE_ONE = "(umask 077; ray get-auth-token --generate), and start the head and all nodes with RAY_AUTH_MODE=token"


@dataclass(frozen=True)
class Token:
    """How a program of this machine proves to the cluster who it is."""

    variables: Mapping[str, str]  # for its environment
    source: str
    note: str = ""  # what was changed


def find_token() -> Token:
    """Return the token that Ray would use, after making its file private; UserError if it can't be used safely."""
    if (mode := os.environ.get(MODE, TOKEN_MODE)) != TOKEN_MODE:
        raise UserError(f"{MODE} is {mode[:40]!r}: Ray would run anybody's code, use {MODE}={TOKEN_MODE} everywhere")
    if os.environ.get(VALUE):
        return Token({MODE: TOKEN_MODE}, VALUE)
    path = Path(os.environ.get(FILE) or Path.home() / USUAL_FILE)
    if not path.exists() and not path.is_symlink():
        raise UserError(
            f"there is no token for the Ray cluster in {path}: copy the cluster's there, or make one with {MAKE_ONE}"
        )
    note = _make_private(path)
    return Token({MODE: TOKEN_MODE, FILE: str(path.absolute())}, str(path), note)


def _make_private(path: Path) -> str:
    """Let only its owner read the token; return a line if others could until now."""
    with explained(UserError, path, before="the token of the Ray cluster can't be used: "), open_regular(path) as file:
        facts = os.fstat(file.fileno())
        if facts.st_uid != os.geteuid():
            raise UserError(
                f"{path} belongs to another user: copy the token into a file of your own and name it in {FILE}"
            )
        if not file.read(MAX_TOKEN_BYTES).strip():
            raise UserError(f"{path} is empty: copy the cluster's token there, or make one with {MAKE_ONE}")
        if stat.S_IMODE(facts.st_mode) & ~OWNER_ONLY == 0:
            return ""
        os.fchmod(file.fileno(), OWNER_ONLY)
    return f"others could read the token in {path} until now: if they are strangers, make a new one"
