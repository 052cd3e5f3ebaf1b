"""Flags that every benchmark has."""

import argparse
from collections.abc import Callable


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with --json and --no-record."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the record as one JSON object, and nothing else")
    parser.add_argument("--no-record", action="store_true", help="leave benchmarks/records/ as it is")
    return parser


def at_least(lowest: int) -> Callable[[str], int]:
    """Return a type for argparse: whole numbers from `lowest` on, digits grouped as one likes."""

    def number(text: str) -> int:
        value = int(text)
        if value < lowest:
            raise argparse.ArgumentTypeError(f"{value} is below {lowest}")
        return value

    return number
