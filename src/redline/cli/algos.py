"""`redline algos [NAME]`: the algorithms: parts, papers, defaults, and the newest measurement of each kind."""

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from redline.algorithms import named
from redline.algorithms.catalog import (
    ALGORITHMS,
    canonical_name,
    find_algorithm,
    foreign_algorithms,
    part_fields,
    part_name,
)
from redline.algorithms.named import Preset
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.cli.main import DONE
from redline.cli.output import is_plain, print_facts, print_json, print_table, warn
from redline.cli.parsing import Json, Plain, parse
from redline.errors import UserError
from redline.jsonl import measured
from redline.units import number, rate

FAMILIES = (QLearning.family, OnPolicy.family)  # in the order in which they are listed
RESULTS = "results.json"  # of the package; benchmarks/tables.py writes it
MAX_RECORD_BYTES = 64_000_000
# what is measured → how the names of its records begin
KINDS: Mapping[str, str] = {
    "cartpole": "algorithms-cartpole-v1-",
    "catch": "algorithms-catch-",
    "pong_speed": "algorithms-pong-speed-",
    "pong_score": "algorithms-pong-score-",
}
NOTHING = "–"
GAP = 2  # between two columns

Facts = dict[str, Any]


@dataclass(frozen=True)
class AlgosFlags:
    """List the algorithms, or tell everything about one: redline algos rainbow."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = None
    """The algorithm to tell about."""
    records: Path | None = None
    """Folder of records to show in place of the results that come with Redline."""
    plain: Plain = False
    json: Json = False


def run(args: Sequence[str]) -> int:
    flags = parse(AlgosFlags, args, prog="redline algos")
    algorithms = all_facts() if flags.name is None else {canonical_name(flags.name): facts_of(flags.name)}
    results, unreadable = (own_results(), []) if flags.records is None else read_results(flags.records)
    for name, facts in algorithms.items():
        facts["results"] = {kind: results[kind].get(name) for kind in KINDS}
    warn(unreadable)
    if flags.json:
        print_json({"records": flags.records, "algorithms": algorithms})
        return DONE
    if flags.name is None:
        show_all(algorithms, plain=is_plain(flags))
    else:
        show_one(*algorithms.popitem(), plain=is_plain(flags))
    return DONE


# What an algorithm is


def all_facts() -> dict[str, Facts]:
    """Return the facts of each algorithm, by family and name."""
    found = {name: facts_of(name) for name in ALGORITHMS}
    for name in foreign_algorithms():
        with suppress(UserError):  # a package that can't be loaded; who asks for it is told
            found[canonical_name(name)] = facts_of(name)
    return dict(sorted(found.items(), key=lambda item: (FAMILIES.index(item[1]["family"]), item[0])))


def facts_of(name: str) -> Facts:
    """Return what is known of an algorithm without any measurement."""
    entry, name = find_algorithm(name), canonical_name(name)
    about = entry.changes
    if name in ALGORITHMS:  # what its file says of it, departures from the paper included
        about = import_module(f"{named.__name__}.{name.replace('-', '_')}").__doc__ or ""
    parts, usual = _parts(entry.atari.algorithm), _parts(type(entry.atari.algorithm)())
    return {
        "family": entry.atari.algorithm.family,
        "changes": entry.changes,
        "paper": entry.paper,
        "about": inspect.cleandoc(about),
        "parts": parts,
        "own_parts": [part for part, kind in parts.items() if kind != usual[part]],  # unlike the family's
        "defaults": {"atari": _defaults(entry.atari), "classic": _defaults(entry.classic)},
    }


def _parts(algorithm: Any) -> dict[str, str]:
    return {part: part_name(getattr(algorithm, part)) for part in part_fields(algorithm)}


def _defaults(preset: Preset) -> Facts:
    algorithm = preset.algorithm
    return {
        "source": preset.source,
        "parts": _parts(algorithm),
        "num_envs": preset.num_envs,
        "lr": algorithm.optimizer.lr_at(0),
        "batch_size": algorithm.batch_size,
        **algorithm.paces(),
        "gamma": algorithm.returns.gamma,
        "evaluation_epsilon": algorithm.explore.evaluation_epsilon(),
    }


# What was measured of it


def own_results() -> dict[str, dict[str, Facts]]:
    results: dict[str, dict[str, Facts]] = json.loads((files("redline.cli") / RESULTS).read_text(encoding="utf-8"))
    return results


def read_results(folder: Path) -> tuple[dict[str, dict[str, Facts]], list[str]]:
    """Return the newest measurement by kind and algorithm, and which records could not be read."""
    results: dict[str, dict[str, Facts]] = {kind: {} for kind in KINDS}
    unreadable: list[str] = []
    if not folder.is_dir():
        raise UserError(f"records {folder} is no folder: use the benchmarks/records of a copy of the repository")
    for kind, start in KINDS.items():
        for path in sorted(folder.glob(f"{start}*.json")):
            try:
                found = _read_record(path)
            except (OSError, ValueError, RecursionError) as error:
                unreadable.append(f"{path.name} is left out: {error}")
                continue
            for name, result in found.items():
                if name not in results[kind] or result["unix_s"] >= results[kind][name]["unix_s"]:
                    results[kind][name] = result
    return results, unreadable


def _read_record(path: Path) -> dict[str, Facts]:
    if path.stat().st_size > MAX_RECORD_BYTES:
        raise ValueError(f"it is larger than {MAX_RECORD_BYTES:_} bytes")
    record = json.loads(path.read_text(encoding="utf-8"))
    try:
        unix_s, algorithms = measured(record["unix_s"]), record["summary"]["algorithms"]
    except (KeyError, TypeError):
        unix_s, algorithms = None, None
    if unix_s is None or not isinstance(algorithms, Mapping):
        raise ValueError("it lacks unix_s or summary.algorithms")
    return {
        name: {**values, "record": path.name, "unix_s": unix_s}
        for name, values in algorithms.items()
        if isinstance(values, Mapping)
    }


# How it is shown


def show_all(algorithms: Mapping[str, Facts], *, plain: bool) -> None:
    """Print two tables: what each changes and reaches, and what it is made of and starts with."""
    head = ("name", "family", "changes", "paper", "CartPole", "Catch", "Pong steps/s", "Pong score")
    rows = [
        (name, facts["family"], facts["changes"], facts["paper"], *(text for _, text in describe_results(facts)))
        for name, facts in algorithms.items()
    ]
    print_in_parts(head, rows, plain=plain, numeric=(4, 5, 6, 7))
    print("CartPole, Catch: seeds that passed, and the median of the steps that they took")
    print()
    made_of_head = ("name", "parts unlike the family's", "defaults on Atari", "defaults on classic control")
    made_of = [
        (
            name,
            ", ".join(facts["parts"][part] for part in facts["own_parts"]) or NOTHING,
            *(describe_defaults(defaults) for defaults in facts["defaults"].values()),
        )
        for name, facts in algorithms.items()
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


def show_one(name: str, facts: Facts, *, plain: bool) -> None:
    print(f"{name} ({facts['family']}): {facts['changes']}")
    print(f"\n{facts['about']}\n")
    rows = [("paper", facts["paper"])]
    for domain, defaults in (("Atari", facts["defaults"]["atari"]), ("classic control", facts["defaults"]["classic"])):
        numbers = (
            f"{key.replace('_', ' ')} {value:,g}" for key, value in defaults.items() if measured(value) is not None
        )
        rows += [
            (f"on {domain}", ", ".join(f"{part} {kind}" for part, kind in defaults["parts"].items())),
            ("", ", ".join(numbers)),
            ("", f"source: {defaults['source']}"),
        ]
    print_facts([*rows, *describe_results(facts, at_length=True)], plain=plain)


def describe_defaults(defaults: Facts) -> str:
    """Return the numbers that matter most in one line."""
    if "rollout_steps" in defaults:
        epochs = f"{defaults['epochs']} epoch{'' if defaults['epochs'] == 1 else 's'}"
        pace, returns = f"{defaults['rollout_steps']} steps × {epochs}", f"λ {defaults['lambda']:g}"
    else:
        pace, returns = f"{defaults['samples_per_step']:g} per step", f"n {defaults['n']}"
    return (
        f"lr {defaults['lr']:g}, batch {defaults['batch_size']}, {pace}, {defaults['num_envs']} envs, "
        f"{returns}, γ {defaults['gamma']:g}"
    )


def describe_results(facts: Facts, *, at_length: bool = False) -> list[tuple[str, str]]:
    """Return a name and a text for each kind of result; at length with the name of its record."""
    ways = {
        "cartpole": ("CartPole", _solved),
        "catch": ("Catch", _solved),
        "pong_speed": ("Pong steps/s", _speed),
        "pong_score": ("Pong score", _score),
    }
    told = []
    for kind, (name, describe) in ways.items():
        result = facts["results"][kind]
        text = NOTHING if result is None else describe(result, at_length)
        told.append((name, f"{text}, record {result['record']}" if at_length and result is not None else text))
    return told


def _solved(result: Facts, at_length: bool) -> str:
    """Say how many seeds passed, and after how many steps."""
    keys = ("seeds", "seeds_passed", "first_reached_steps", "best_mean_return_100")
    seeds, passed, steps, best = (measured(result.get(key)) for key in keys)
    if seeds is None or passed is None:
        return NOTHING
    if at_length:
        when = "" if steps is None else f", first after {steps:,.0f} steps (median)"
        return f"{passed:g} of {seeds:g} seeds passed{when}, best mean-100 {number(best)}"
    return f"{passed:g}/{seeds:g}" + ("" if steps is None else f" {steps / 1_000:,.0f}k")


def _speed(result: Facts, _: bool) -> str:
    speed = measured(result.get("steps_per_s"))
    return NOTHING if speed is None else rate(speed)


def _score(result: Facts, at_length: bool) -> str:
    score = measured(result.get("mean_return"))
    if score is None or not at_length:
        return number(score, 1)
    known = (("episodes", "{:,.0f} episodes"), ("steps", "{:,.0f} steps"), ("minutes", "{:.1f} minutes"))
    values = {key: measured(result.get(key)) for key, _ in known}
    rest = [text.format(values[key]) for key, text in known if values[key] is not None]
    return number(score, 1) + (f" ({', '.join(rest)})" if rest else "")
