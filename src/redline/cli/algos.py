"""`redline algos [NAME]`: the algorithms, what they are made of, and what was measured of them."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from redline.cli.algorithm_facts import (
    KINDS,
    RECORDS,
    AlgorithmCard,
    Defaults,
    Finding,
    Findings,
    all_cards,
    find_records,
    read_card,
    read_findings,
)
from redline.cli.main import DONE
from redline.cli.output import is_plain, print_facts, print_table
from redline.cli.parsing import parse, split_name
from redline.jsonl import as_json_value
from redline.units import number, rate

PROGRAM = "redline algos [NAME]"
NOTHING = "–"
GAP = 2  # between two columns


@dataclass(frozen=True)
class AlgosFlags:
    """List the algorithms, or tell everything about one: redline algos rainbow."""

    records: Path | None = None
    """Folder of records; benchmarks/records of the repository around the current folder if not given."""
    plain: bool = False
    """Plain text, no drawing."""
    json: bool = False
    """Print everything as one JSON object on stdout, and nothing else there."""


def run(args: Sequence[str]) -> int:
    """List what is known and return the exit code."""
    name, rest = split_name(args)
    flags = parse(AlgosFlags, rest, default=AlgosFlags(), prog=PROGRAM)
    cards = all_cards() if name is None else [read_card(name)]
    findings = read_findings(flags.records or find_records(Path()))
    for problem in findings.unreadable:
        print(f"redline: warning: {problem}", file=sys.stderr)
    plain = is_plain(plain=flags.plain, as_json=flags.json)
    if flags.json:
        print(json.dumps(to_json(cards, findings), allow_nan=False))
        return DONE
    if name is not None:
        show_one(cards[0], findings, plain=plain)
    else:
        show_all(cards, findings, plain=plain)
    if findings.folder is None:
        print(f"nothing measured is shown: no {RECORDS} here or above, use --records DIR")
    return DONE


def to_json(cards: Sequence[AlgorithmCard], findings: Findings) -> object:
    """Return everything as one plain object."""
    algorithms = {}
    for card in cards:
        found = {kind: findings.of(kind, card.name) for kind in KINDS}
        results = {kind: None if finding is None else finding.to_json() for kind, finding in found.items()}
        algorithms[card.name] = {**card.to_json(), "results": results}
    folder = None if findings.folder is None else str(findings.folder)
    return as_json_value({"schema": 1, "records": folder, "algorithms": algorithms})


def show_all(cards: Sequence[AlgorithmCard], findings: Findings, *, plain: bool) -> None:
    """Print two tables: what each changes and reaches, and what it is made of and starts with."""
    head = ("name", "family", "changes", "paper", "CartPole", "Catch", "Pong steps/s", "Pong score")
    rows = [
        (
            card.name,
            card.family,
            card.changes,
            card.paper,
            describe_solved(findings.of("cartpole", card.name)),
            describe_solved(findings.of("catch", card.name)),
            describe_speed(findings.of("pong_speed", card.name)),
            describe_score(findings.of("pong_score", card.name)),
        )
        for card in cards
    ]
    print_in_parts(head, rows, plain=plain, numeric=(4, 5, 6, 7))
    print("CartPole, Catch: seeds that passed, and the median of the steps that they took")
    print()
    made_of_head = ("name", "parts unlike the family's", "defaults on Atari", "defaults on classic control")
    made_of = [
        (
            card.name,
            ", ".join(card.atari.parts[field] for field in card.own_parts) or NOTHING,
            card.atari.summary(),
            card.classic.summary(),
        )
        for card in cards
    ]
    print_in_parts(made_of_head, made_of, plain=plain, numeric=())
    print("redline algos NAME shows everything about one of them")


def print_in_parts(head: Sequence[str], rows: Sequence[Sequence[str]], *, plain: bool, numeric: Sequence[int]) -> None:
    """Print a table, or several that each start with the name where the terminal is too narrow for one."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for columns in [range(len(head))] if plain else fit_columns(widths, Console().width):
        print_table(
            [head[place] for place in columns],
            [[row[place] for place in columns] for row in rows],
            plain=plain,
            numeric=[i for i, place in enumerate(columns) if place in numeric],
        )


def fit_columns(widths: Sequence[int], width: int) -> Iterator[list[int]]:
    """Yield the columns of each table: the first one always, then as many of the others as fit."""
    columns = [0]
    for place in range(1, len(widths)):
        if len(columns) > 1 and sum(widths[i] + GAP for i in (*columns, place)) > width:
            yield columns
            columns = [0]
        columns.append(place)
    yield columns


def show_one(card: AlgorithmCard, findings: Findings, *, plain: bool) -> None:
    """Print everything about one algorithm."""
    print(f"{card.name} ({card.family}): {card.changes}")
    print(f"\n{card.about}\n")
    solved = {kind: findings.of(kind, card.name) for kind in ("cartpole", "catch")}
    speed, score = findings.of("pong_speed", card.name), findings.of("pong_score", card.name)
    facts = [
        ("paper", card.paper),
        *_facts("Atari", card.atari),
        *_facts("classic control", card.classic),
        ("CartPole", _with_record(describe_solved(solved["cartpole"], at_length=True), solved["cartpole"])),
        ("Catch", _with_record(describe_solved(solved["catch"], at_length=True), solved["catch"])),
        ("Pong steps/s", _with_record(describe_speed(speed), speed)),
        ("Pong score", _with_record(describe_score(score, at_length=True), score)),
    ]
    print_facts(facts, plain=plain)


def _facts(domain: str, defaults: Defaults) -> list[tuple[str, str]]:
    numbers = ", ".join(f"{key.replace('_', ' ')} {value:,g}" for key, value in defaults.numbers.items())
    return [
        (f"on {domain}", ", ".join(f"{field} {name}" for field, name in defaults.parts.items())),
        ("", numbers),
        ("", f"source: {defaults.source}"),
    ]


def describe_solved(finding: Finding | None, *, at_length: bool = False) -> str:
    """Say how many seeds passed, and after how many steps."""
    if finding is None:
        return NOTHING
    seeds, passed = finding.number("seeds"), finding.number("seeds_passed")
    if seeds is None or passed is None:
        return NOTHING
    steps, best = finding.number("first_reached_steps"), finding.number("best_mean_return_100")
    if at_length:
        when = "" if steps is None else f", first after {steps:,.0f} steps (median)"
        return f"{passed:g} of {seeds:g} seeds passed{when}, best mean-100 {number(best)}"
    return f"{passed:g}/{seeds:g}" + ("" if steps is None else f" {steps / 1_000:,.0f}k")


def describe_speed(finding: Finding | None) -> str:
    """Say how fast it learns."""
    speed = None if finding is None else finding.number("steps_per_s")
    return NOTHING if speed is None else rate(speed)


def describe_score(finding: Finding | None, *, at_length: bool = False) -> str:
    """Say what it reaches."""
    score = None if finding is None else finding.number("mean_return")
    if finding is None or score is None:
        return NOTHING
    if not at_length:
        return number(score, 1)
    known = ((finding.number("episodes"), "episodes"), (finding.number("steps"), "steps"))
    rest = [f"{value:,.0f} {unit}" for value, unit in known if value is not None]
    if (minutes := finding.number("minutes")) is not None:
        rest.append(f"{minutes:.1f} minutes")
    return number(score, 1) + (f" ({', '.join(rest)})" if rest else "")


def _with_record(text: str, finding: Finding | None) -> str:
    return text if finding is None else f"{text}, record {finding.record}"
