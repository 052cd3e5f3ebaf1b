"""`redline fleet report`: what a fleet ran, what it reached and what it cost, from its files alone."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.cli.fleet.status import Folder
from redline.cli.output import give, is_plain, print_table, progress_bar
from redline.cli.parsing import Json, Plain, parse
from redline.cli.plan.rates import UNITS, given_speeds, read_baseline, read_number, refuse_unused
from redline.cli.report import write_file
from redline.envs.game_lists import GameLimit, LimitUnit, known_name
from redline.errors import UserError
from redline.fleet.cost import Baseline, Work, baseline_runs
from redline.fleet.report import REPORT_HTML, read_report
from redline.fleet.slots import RUNS
from redline.plan.run_speed import speeds_by_game
from redline.units import number, size


@dataclass(frozen=True)
class FleetReportFlags:
    """Write a page and a Markdown file: what ran, what it reached and what it cost. The runs are only read."""

    dir: Folder
    out: Path | None = None
    """The page to write, usually report.html in DIR: one file that needs no network. report.md goes beside it."""
    baseline: Annotated[str | None, tyro.conf.arg(metavar="DIR|RATE")] = None
    """What hours and money are compared with: a rate in --unit, a fleet, or a folder of runs."""
    unit: str | None = None
    """Of a rate as --baseline: episodes (per hour), steps (per second; usual) or frames (the same)."""
    price_per_hour: str | None = None
    """Price of an hour of the machine; usual: that of the fleet's list. $ stands for your currency."""
    plain: Plain = False
    json: Json = False

    def __post_init__(self) -> None:
        if self.unit not in (None, *UNITS):
            raise UserError(f"--unit is {self.unit!r}: use {' or '.join(UNITS)}")


def run(args: Sequence[str]) -> int:
    """Read the fleet, write both files, and say what is in them."""
    flags = parse(FleetReportFlags, args, prog="redline fleet report")
    page = flags.dir / REPORT_HTML if flags.out is None else flags.out
    check_page(page, flags.dir)
    price = None if flags.price_per_hour is None else read_number("price-per-hour", flags.price_per_hour, or_zero=True)
    find_baseline = baseline_finder(flags)
    with progress_bar("reading the fleet", plain=is_plain(flags)) as progress:
        report = read_report(flags.dir, price_per_hour=price, find_baseline=find_baseline, progress=progress)
        now_s = time.time()
        texts = {page.with_suffix(".md"): report.markdown(unix_s=now_s), page: report.html(unix_s=now_s)}
    for path, text in texts.items():  # the page last: one that is there says that all went well
        write_file("--out", path, [text.encode()])
    written = {"out": page, "markdown": page.with_suffix(".md"), "bytes": page.stat().st_size}
    return give({**report.to_json(), **written}, flags, show)


def check_page(page: Path, folder: Path) -> None:
    """Refuse a page that would take the place of something else."""
    if page.suffix != ".html":
        raise UserError(f"--out is {page}: use a name that ends in .html")
    if page.resolve().is_relative_to((folder / RUNS).resolve()):
        raise UserError(f"{page} lies among the fleet's runs, which are only read: use another --out")
    if page.is_dir():
        raise UserError(f"{page} is a folder: use --out {page / REPORT_HTML}")


def baseline_finder(flags: FleetReportFlags) -> Any:
    """Return the function that says how fast the fleet's games were trained before."""
    rate, runs = (None, ()) if flags.baseline is None else read_baseline([flags.baseline])
    refuse_unused(("--unit", flags.unit, rate is not None, "a rate as --baseline"))
    if rate is not None:
        return lambda works: given_baseline(works, rate, flags.unit)
    if runs:
        speeds, concurrency, notes = baseline_runs(Path(runs[0]))

        def found(works: Sequence[Work]) -> Baseline:
            games = {work.game: GameLimit(known_name(work.game)) for work in works}
            by_name, more = speeds_by_game(list(games.values()), speeds)
            own = {game: by_name[known.game] for game, known in games.items()}
            return Baseline(own, "steps", concurrency, (*notes, *more))

        return found
    return lambda works: None


def given_baseline(works: Sequence[Work], rate: Decimal, unit: str | None) -> Baseline:
    """Return one rate for all games, one at a time."""
    counted: LimitUnit = "episodes" if unit == "episodes" else "steps"
    games = [GameLimit(work.game, unit=counted) for work in works]
    return Baseline(given_speeds(games, rate, unit), counted, 1, ())


def show(facts: Mapping[str, Any], *, plain: bool) -> None:
    """Print the scores, the aggregates, what it cost, and where the page is."""
    rows = [
        (row["game"], row["kind"], f"{row['n']} of {row['slots']}", number(row["mean"]), interval(row["interval"]))
        for row in facts["scores"]
    ]
    print_table(("game", "runs", "counted", "mean-100", "90 % interval"), rows, plain=plain, numeric=(2, 3, 4))
    for one in facts["overall"]:
        values = ", ".join(f"{name} {number(one[name]['value'])}" for name in ("median", "IQM", "optimality gap"))
        print(f"{one['algorithm']}, human-normalised over {len(one['games'])} games: {values}")
    if facts["cost"] is not None:
        total = facts["cost"]["total"]
        price = "" if total["cost"] is None else f", ${total['cost']:,}"
        print(f"{total['hours']:,} hours, {total['days']:,} days{price}")
        if facts["cost"]["saved"] is not None:
            print(facts["cost"]["saved"]["words"])
    if facts["incidents"]:
        print(f"{len(facts['incidents']):,} incident{'s' * (len(facts['incidents']) != 1)}")
    for problem in facts["problems"]:
        print(problem)
    print(f"report of {size(facts['bytes'])}: {facts['out']}, and {facts['markdown'].name}")


def interval(ends: Mapping[str, float] | None) -> str:
    return "–" if ends is None else f"{number(ends['low'])} … {number(ends['high'])}"
