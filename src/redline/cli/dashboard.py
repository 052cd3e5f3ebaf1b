"""`redline dashboard [RUNS|FLEETS…]`: runs and fleets in the browser while they go on; their files are only read."""

import secrets
import stat
import sys
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import tyro

from redline.cli.main import DONE
from redline.cli.output import print_json
from redline.cli.parsing import Json, Plain, parse, positionals_first
from redline.errors import UserError, check_range
from redline.files import explained, read_bounded, write_synced
from redline.jsonl import plain_text
from redline.runs.locating import RUNS

MIN_TOKEN_CHARS, MAX_TOKEN_BYTES = 20, 1_000
WITH_VALUE = ("--port", "--host", "--token-file")
EXTRA = ("starlette", "uvicorn")


@dataclass(frozen=True)
class DashboardFlags:
    """Show runs and fleets in the browser while they go on. Files are only read; Ctrl-C ends the dashboard alone."""

    folders: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUNS|FLEETS…")] = ()
    """Run directories, fleets, or folders that hold some; by default ./runs."""
    port: int = 8_090
    """Port to listen on; 0 takes a free one."""
    host: str = "127.0.0.1"
    """Address to listen on. Any but this machine's own needs a token: a link is printed that brings one along."""
    token_file: Path | None = None
    """File with the token, made if it is not there, so that devices stay signed in after a restart."""
    allow_stop: bool = False
    """Add a button that asks a run to save itself and stop, as Ctrl-C does."""
    open: bool = False
    """Open the page in the browser of this machine."""
    plain: Plain = False
    json: Json = False


def run(args: Sequence[str]) -> int:
    flags = parse(
        DashboardFlags, positionals_first(args, WITH_VALUE), default=DashboardFlags(), prog="redline dashboard"
    )
    folders = check_folders(flags.folders)
    check_range("port", flags.port, 0, 65_535)
    if missing := [name for name in EXTRA if find_spec(name) is None]:
        raise UserError(
            f"the dashboard needs {' and '.join(missing)}: pip install 'starlette>=1.0' 'uvicorn>=0.40', "
            "in the repository make setup EXTRAS=dashboard"
        )
    from redline.dashboard.access import LOGIN, Guard, is_loopback, names_of
    from redline.dashboard.app import Dashboard
    from redline.dashboard.serving import guarded, open_socket, serve

    secret = read_token(flags.token_file)
    if secret is None and not is_loopback(flags.host):
        secret = secrets.token_urlsafe(32).encode()
    listener = open_socket(flags.host, flags.port)
    port = int(listener.getsockname()[1])
    guard = Guard(names=names_of(flags.host), secret=secret, cookie=f"redline_{port}")
    address = f"http://{_shown_host(flags.host)}:{port}"
    link = f"{address}{LOGIN}?once={guard.new_link()}" if guard.needs_token else f"{address}/"
    say(flags, address=address, link=link, folders=folders, is_open=not is_loopback(flags.host))
    if flags.open:
        webbrowser.open(link)
    dashboard = Dashboard(folders, guard, allow_stop=flags.allow_stop, address=address)
    try:
        serve(guarded(dashboard.app, guard, _note), listener)
    finally:
        dashboard.close()
    return DONE


def check_folders(given: Sequence[Path]) -> list[Path]:
    """Return the folders to show; UserError for what is none."""
    if not given and not RUNS.is_dir():
        raise UserError(f"there is no folder {RUNS} here: redline train starts a run, or name a folder of runs")
    for folder in given:
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise UserError(f"{folder} {what}: name a run directory, a fleet, or a folder with some")
    return list(given) or [RUNS]


def read_token(path: Path | None) -> bytes | None:
    """Return the token in a private file, which is made if it is not there; None without a file."""
    if path is None:
        return None
    with explained(UserError, path, before="the token can't be kept: ", after=": use another --token-file"):
        if not path.exists() and not path.is_symlink():
            write_synced(path, [f"{secrets.token_urlsafe(32)}\n".encode()])
            path.chmod(0o600)
        if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise UserError(f"{path} can be read by others: chmod 600 {path}")
        token = read_bounded(path, max_bytes=MAX_TOKEN_BYTES).strip()
    if len(token) < MIN_TOKEN_CHARS or not token.isascii():
        raise UserError(f"{path} holds no token of {MIN_TOKEN_CHARS} characters or more: remove it, and one is made")
    return token


def say(flags: DashboardFlags, *, address: str, link: str, folders: Sequence[Path], is_open: bool) -> None:
    """Say where the dashboard is, and who can see it."""
    if is_open:
        print(
            "redline: no TLS: who can read the traffic of this network can read along, and take over a session. "
            "On networks of others, use ssh -L 8090:localhost:8090 instead",
            file=sys.stderr,
        )
    if flags.json:
        print_json({"address": address, "link": link, "folders": folders, "allow_stop": flags.allow_stop})
        return
    once = " (good once, for 10 minutes)" if link != f"{address}/" else ""
    print(f"dashboard of {', '.join(plain_text(folder) for folder in folders)}: {link}{once}")
    print("Ctrl-C ends it", flush=True)


def _shown_host(host: str) -> str:
    if host in ("0.0.0.0", "::"):  # noqa: S104 - typed by the user
        import platform

        return platform.node() or "localhost"
    return f"[{host}]" if ":" in host else host


def _note(text: str) -> None:
    print(f"redline: dashboard: {text}", file=sys.stderr, flush=True)
