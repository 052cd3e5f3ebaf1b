"""What every benchmark shares: its flags, a look at how busy the machine is, and its record.

A record is one new file in benchmarks/records/, and is never changed afterwards.
"""

import argparse
import json
import re
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from redline.bench.measuring import MAX_BUSY_PERCENT
from redline.jsonl import SCHEMA, as_json_value
from redline.runs.host import host_facts, version

RECORDS = Path(__file__).resolve().parent / "records"
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MACHINE_PATH = re.compile(
    r"(?<![\w.…~/:])(~|/[\w.-]+)/[\w.-]"
)  # `~/x` and `/home/x`, but not `steps/s` or `ALE/Pong-v5`


@dataclass(frozen=True)
class Measurement:
    """What a script found out."""

    name: str  # what is measured; the newest record of a name stands in docs/measured.md
    title: str  # the same, for people
    headline: str  # the result in a few words
    learning: str  # what was learnt meanwhile: speed is never read alone
    passed: bool | None  # None where nothing was required
    config: Mapping[str, Any]
    repeats: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]
    packages: Sequence[str] = ()  # whose versions matter besides Redline's own


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, extremes and quartiles."""
    if not values:
        raise ValueError("nothing was measured: a spread needs at least one value")
    whole = len(values) > 1
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive") if whole else [values[0]] * 3
    return {"median": median, "min": min(values), "q1": q1, "q3": q3, "max": max(values)}


def make_record(measurement: Measurement, *, argv: Sequence[str], unix_s: float) -> dict[str, Any]:
    """Return the record as plain data; a path of this machine in it is an error."""
    if NAME.fullmatch(measurement.name) is None:
        raise ValueError(f"{measurement.name!r} can't name a record: use small letters, digits and single dashes")
    facts = host_facts()
    content = {key: value for key, value in asdict(measurement).items() if key != "packages"}
    versions = dict(facts["versions"])  # type: ignore[call-overload]
    record = {
        "schema": SCHEMA,
        "name": content.pop("name"),
        "unix_s": unix_s,
        "command": relative_command(argv),
        "commit": facts["commit"],
        "host": facts["host"],
        "versions": versions | {name: version(name) for name in measurement.packages},
        **content,
    }
    plain = as_json_value(record)
    for text in _texts(plain):
        if MACHINE_PATH.search(text):
            raise ValueError(f"a record must not hold a path of this machine: {text!r}")
    return plain  # type: ignore[return-value]


def write_record(record: Mapping[str, Any], folder: Path = RECORDS) -> Path:
    """Write `<name>-<YYYYMMDD-HHMMSS>.json` (UTC) and return its path; an existing file is never touched."""
    folder.mkdir(parents=True, exist_ok=True)
    moment = time.strftime("%Y%m%d-%H%M%S", time.gmtime(record["unix_s"]))
    path = folder / f"{record['name']}-{moment}.json"
    with path.open("x", encoding="utf-8") as file:
        file.write(json.dumps(record, allow_nan=False, ensure_ascii=False, indent=2) + "\n")
    return path


def finish(measurement: Measurement, *, as_json: bool, keep: bool) -> int:
    """Record a measurement, tell its result, and return the script's exit code."""
    record = make_record(measurement, argv=sys.argv, unix_s=time.time())
    if keep:
        path = write_record(record)
        say(f"recorded in benchmarks/records/{path.name}")
    if as_json:
        print(json.dumps(record, allow_nan=False))
    else:
        print(f"{measurement.title}: {measurement.headline} ({measurement.learning})")
    return 1 if measurement.passed is False else 0


def say(text: str) -> None:
    """Print progress, away from the result."""
    print(text, file=sys.stderr, flush=True)


def relative_command(argv: Sequence[str]) -> str:
    """Return the command as it would be typed in the repository, paths from elsewhere cut to their last name."""
    shown = [_shown(argument) for argument in argv[1:]]
    return shlex.join(["python", f"benchmarks/{Path(argv[0]).name}", *shown])


def _shown(argument: str) -> str:
    flag, equals, value = argument.partition("=")
    if equals and flag.startswith("-"):
        return f"{flag}={_shown(value)}"
    path = Path(argument)
    if not path.is_absolute() and not argument.startswith("~"):
        return argument
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else f"…/{path.name}"


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key)
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with --json and --no-record."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print the record as one JSON object, and nothing else")
    parser.add_argument("--no-record", action="store_true", help="leave benchmarks/records/ as it is")
    return parser


def at_least(lowest: int) -> Callable[[str], int]:
    """Return a type for argparse: whole numbers from `lowest` on; `_` may group digits."""

    def number(text: str) -> int:
        value = int(text)
        if value < lowest:
            raise argparse.ArgumentTypeError(f"{value} is below {lowest}")
        return value

    return number


def refuse_busy_machine(script: str, *, allow_busy: bool) -> None:
    """Stop where other processes use the machine."""
    busy_percent = psutil.cpu_percent(interval=1.0)
    if busy_percent > MAX_BUSY_PERCENT and not allow_busy:
        raise SystemExit(
            f"{script}: the machine is {busy_percent:.0f} % busy: wait, or use --allow-busy to try the script"
        )
