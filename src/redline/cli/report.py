"""`redline report RUN…`: one page about a run, or a comparison of several, from their files alone."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.cli.output import give, is_plain, print_table, progress_bar
from redline.cli.parsing import Json, Plain, parse, positionals_first
from redline.errors import UserError
from redline.files import explained, make_folder, replace_file
from redline.jsonl import encode_row
from redline.report.page import Page, build_page
from redline.report.relation import choose_runs, relate
from redline.report.run_files import RunFiles, load_runs
from redline.report.run_series import joined_rows
from redline.report.run_summary import summarise
from redline.runs.locating import LAST, locate_run
from redline.units import number, size

WITH_VALUE = ("--out", "--png", "--episodes")
USUAL_NAMES = {"--out": "report.html", "--episodes": "episodes.jsonl"}
EXAMPLE = "redline report runs/pong/dqn/20260101-120000-s1 --out report.html"
MAX_NAME_CHARS = 60


@dataclass(frozen=True)
class ReportFlags:
    """Make one page of charts and tables from a run; from several, a comparison. The runs are only read."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN…")] = ()
    """Run directories, folders that hold some, or last: the newest in ./runs."""
    out: Path = Path("report.html")
    """The page to write: one file, which needs nothing else and no network."""
    png: Path | None = None
    """Folder for every chart as a PNG."""
    episodes: Path | None = None
    """JSON Lines to write: every episode with the means of the hardware while it was played."""
    plain: Plain = False
    json: Json = False


def run(args: Sequence[str]) -> int:
    flags = parse(ReportFlags, positionals_first(args, WITH_VALUE), default=ReportFlags(), prog="redline report")
    if not flags.runs:
        raise UserError(f"report needs a run directory or a folder of runs: {EXAMPLE}")
    is_last = [path == Path(LAST) and not path.exists() for path in flags.runs]
    runs = load_runs([locate_run(LAST) if last else path for path, last in zip(flags.runs, is_last, strict=True)])
    check_targets(flags, runs)
    with progress_bar(f"drawing {len(runs)} run{'s' * (len(runs) > 1)}", plain=is_plain(flags)) as progress:
        pairs = [(found, summarise(found)) for found in runs]
        relation = None
        if len(runs) > 1:
            compared, left_out = choose_runs(pairs)
            relation = relate([summary for _, summary in compared], left_out)
        page = build_page(pairs, relation, unix_s=time.time(), folder=flags.out.parent, progress=progress)
        text = page.html.encode()
        pictures = [] if flags.png is None else write_pictures(flags.png, page)
        num_episodes = None if flags.episodes is None else write_episodes(flags.episodes, runs)
        write_file("--out", flags.out, [text])  # last: a page that is there says that all went well
        facts = {
            "out": flags.out,
            "bytes": len(text),
            "episodes": num_episodes,
            "png": pictures,
            "runs": [{"path": found.path, "problems": found.problems, **asdict(summary)} for found, summary in pairs],
            "relation": None if relation is None else asdict(relation),
        }
    return give(facts, flags, show)


def check_targets(flags: ReportFlags, runs: Sequence[RunFiles]) -> None:
    """Refuse what can't be written to, or must not be, before anything is drawn."""
    given = {"--out": flags.out, "--png": flags.png, "--episodes": flags.episodes}
    targets = {flag: target for flag, target in given.items() if target is not None}
    for flag, target in targets.items():
        check_target(flag, target, runs)
    for flag, other in permutations(targets, 2):
        target, place = targets[flag].resolve(), targets[other].resolve()
        if target == place:
            raise UserError(f"{flag} and {other} are both {targets[flag]}: use another {other}")
        if flag in USUAL_NAMES and place.is_relative_to(target):
            raise UserError(
                f"{targets[other]} lies inside {targets[flag]}, which {flag} makes a file: use another {other}"
            )


def check_target(flag: str, target: Path, runs: Sequence[RunFiles]) -> None:
    """Refuse a run, a file where a folder belongs, and a folder where a file does."""
    for found in runs:
        if target.resolve().is_relative_to(found.path.resolve()):
            raise UserError(f"{target} lies inside the run {found.path}, which is only read: use another {flag}")
    if flag not in USUAL_NAMES and target.exists() and not target.is_dir():
        raise UserError(f"{target} is no folder: use another {flag}")
    if flag in USUAL_NAMES and target.is_dir():
        raise UserError(f"{target} is a folder: use {flag} {target / USUAL_NAMES[flag]}")


def write_file(flag: str, target: Path, chunks: Iterable[bytes]) -> None:
    """Write a file whole or not at all."""
    with explained(UserError, target, before="cannot write ", after=f": use another {flag}"):
        replace_file(target, chunks)


def write_episodes(target: Path, runs: Sequence[RunFiles]) -> int:
    """Write every episode of every run, each with the name of its run, and return how many there are."""
    count = 0

    def lines() -> Iterator[bytes]:
        nonlocal count
        for found in runs:
            for row in joined_rows(found):
                yield encode_row({"run": found.label, **row})
                count += 1

    write_file("--episodes", target, lines())
    return count


def write_pictures(folder: Path, page: Page) -> list[Path]:
    """Write every chart as a PNG, named by what it shows."""
    from redline.report.png import save_png  # matplotlib is slow to load, and only pictures need it

    paths: list[Path] = []
    with explained(UserError, folder, before="cannot write ", after=": use another --png"):
        make_folder(folder)
        for owner, chart in page.charts:
            path = folder / f"{file_name(owner)}-{file_name(chart.name)}.png"
            if path in paths:  # two runs whose names differ in signs that no file's name should have
                path = path.with_stem(f"{path.stem}-{len(paths)}")
            save_png(chart, path)
            paths.append(path)
    return paths


def file_name(name: str) -> str:
    """Return a name that is safe as a file's, whatever a run is called."""
    return re.sub(r"[^a-zA-Z0-9.]+", "-", name).strip("-.")[:MAX_NAME_CHARS] or "chart"


def show(facts: Mapping[str, Any], *, plain: bool) -> None:
    """Print a line for each run, what is missing, and where the page is."""
    head = ("run", "algorithm", "env", "steps", "steps/s", "updates/s", "cores", "return, last 100", "evaluation")
    rows = [
        (
            run["label"],
            run["algorithm"] or "–",
            run["env"] or "–",
            "–" if run["steps"] is None else f"{run['steps']:,}",
            number(run["steps_per_s"], 1),
            number(run["updates_per_s"], 1),
            number(run["cpu_cores_used"]),
            _score(run["final_return"], run["final_return_episodes"]),
            _score(run["evaluation_return"], run["evaluation_episodes"]),
        )
        for run in facts["runs"]
    ]
    print_table(head, rows, plain=plain, numeric=(3, 4, 5, 6, 7, 8))
    for run in facts["runs"]:
        for problem in run["problems"]:
            print(f"{run['label']}: {problem}")
    for run in facts["relation"]["left_out"] if facts["relation"] is not None else ():
        print(f"{run['label']} is not compared: {run['why']}")
    if facts["episodes"] is not None:
        print(f"{facts['episodes']:,} episodes with the means of the hardware meanwhile")
    if facts["png"]:
        print(f"{len(facts['png'])} charts in {facts['png'][0].parent}")
    print(f"report of {size(facts['bytes'])}: {facts['out']}")


def _score(value: float | None, episodes: int) -> str:
    return number(value, 1) if value is None else f"{number(value, 1)} (n = {episodes:,})"
