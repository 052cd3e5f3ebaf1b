"""Tables and progress as a terminal or a plain stream shows them."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text


def is_plain(*, plain: bool, as_json: bool) -> bool:
    """Tell whether nothing may be drawn: it was asked for, or no terminal is there."""
    return plain or as_json or not sys.stdout.isatty()


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, plain: bool, numeric: Sequence[int]) -> None:
    """Print a table; the columns at `numeric` are aligned to the right.

    A terminal too narrow for it gets plain lines, which break where they must, rather than columns of a letter each.
    """
    lines = (head, *rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if not plain and sum(widths) + 2 * len(widths) <= Console().width:
        table = Table(box=None, header_style="bold red", padding=(0, 2, 0, 0), pad_edge=False)
        for place, title in enumerate(head):
            table.add_column(title, justify="right" if place in numeric else "left", no_wrap=place in numeric)
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        Console().print(table)
        return
    for line in lines:
        cells = [
            text.rjust(width) if place in numeric else text.ljust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def print_facts(facts: Sequence[tuple[str, str]], *, plain: bool) -> None:
    """Print names and what is known under each."""
    if plain:
        width = max(len(name) for name, _ in facts)
        for name, fact in facts:
            print(f"{name:<{width}}  {fact}".rstrip())
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for name, fact in facts:
        grid.add_row(Text(name), Text(fact))
    Console().print(grid)


@contextmanager
def progress_bar(text: str, *, plain: bool) -> Iterator[Callable[[float], None]]:
    """Show how far long work is, in a terminal; yield what is told the share done."""
    if plain:
        yield lambda share: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(text, total=1.0)
        yield lambda share: progress.update(task, completed=share)
