"""What commands print: JSON, tables, facts, progress, warnings, and commands to type next."""

import io
import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from redline.cli.main import DONE
from redline.cli.process import print_object
from redline.errors import UserError
from redline.files import explained, replace_file
from redline.jsonl import as_json_value, plain_text

if TYPE_CHECKING:
    from PIL.Image import Image

NAME = "redline"
SCHEMA = 1


class Printing(Protocol):
    """The flags that every command has."""

    @property
    def plain(self) -> bool:
        """Draw nothing."""

    @property
    def json(self) -> bool:
        """Print one JSON object."""


def is_plain(flags: Printing) -> bool:
    """Tell whether nothing may be drawn: the user asked for that, or stdout is no terminal."""
    return flags.plain or flags.json or sys.stdout is None or not sys.stdout.isatty()


def give(facts: Mapping[str, Any], flags: Printing, show: Callable[..., None]) -> int:
    """Print a result as JSON or by `show(facts, plain=…)`, and return the exit code 0."""
    if flags.json:
        print_json(facts)
    else:
        show(facts, plain=is_plain(flags))
    return DONE


def print_json(content: Mapping[str, object]) -> None:
    """Print one JSON object on stdout; NaN and infinities become null."""
    print_object(json.dumps(as_json_value({"schema": SCHEMA, **content}), allow_nan=False))


def warn(lines: Iterable[str]) -> None:
    """Print warnings on stderr. Anybody may have written the files that they quote."""
    for line in lines:
        print(f"redline: warning: {plain_text(line)}", file=sys.stderr)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, plain: bool, numeric: Sequence[int]) -> None:
    """Print a table; the columns at `numeric` are aligned to the right.

    If the terminal is too narrow for it, print plain lines, which break where they must.
    """
    lines = (head, *rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if not plain and sum(widths) + 2 * len(widths) <= Console().width:
        Console().print(draw_table(head, rows, numeric=numeric))
        return
    for line in lines:
        cells = [
            text.rjust(width) if place in numeric else text.ljust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def draw_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, numeric: Sequence[int], gap: int = 2) -> Table:
    """Draw a table; the columns at `numeric` are aligned to the right and never broken."""
    table = Table(box=None, header_style="bold red", padding=(0, gap, 0, 0), pad_edge=False)
    for place, title in enumerate(head):
        table.add_column(Text(title), justify="right" if place in numeric else "left", no_wrap=place in numeric)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))  # not markup: a file may say anything
    return table


def print_facts(facts: Sequence[tuple[str, str]], *, plain: bool) -> None:
    if not plain:
        Console().print(draw_facts(facts))
        return
    width = max(len(name) for name, _ in facts)
    for name, fact in facts:
        print(f"{name:<{width}}  {fact}".rstrip())


def draw_facts(facts: Sequence[tuple[str, str]]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for name, fact in facts:
        grid.add_row(Text(name), Text(fact))  # not markup: a file may say anything
    return grid


def write_sheet(picture: "Image", target: Path, flag: str) -> None:
    """Write a picture as a PNG, whole or not at all; an error names the flag to change."""
    content = io.BytesIO()
    picture.save(content, "PNG")
    with explained(UserError, target, before="cannot write the sheet: ", after=f": use another {flag}"):
        replace_file(target, [content.getvalue()])


@contextmanager
def progress_bar(text: str, *, plain: bool) -> Iterator[Callable[[float], None]]:
    """Show a progress bar in a terminal; yield the function that takes the share done, 0 … 1."""
    if plain:
        yield lambda share: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=1.0)
        yield lambda share: progress.update(task, completed=share)


def command(*words: object) -> str:
    """Return a command of this program that works as it is printed, even if `redline` is not on the PATH."""
    return shlex.join([_program(), *map(str, words)])


def typed_env(env_id: str) -> list[str]:
    """Return the `--env` flag that a command needs if the env's id names a module."""
    return ["--env", env_id] if ":" in env_id else []


def _program() -> str:
    """Return the path by which the program was started, or its bare name if a shell finds it by that."""
    started, found = Path(sys.argv[0]), shutil.which(NAME)
    if started.name != NAME or not started.is_file() or (found is not None and started.samefile(found)):
        return NAME
    here = Path.cwd()
    return str(started.absolute().relative_to(here) if started.absolute().is_relative_to(here) else started)
