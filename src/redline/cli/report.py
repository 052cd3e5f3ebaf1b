"""`redline report RUN…`: one page about a run, or a comparison of several, from their files alone."""

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from typing import Annotated

import tyro

from redline.cli.main import DONE
from redline.cli.output import is_plain, print_table, progress_bar
from redline.cli.parsing import parse
from redline.errors import UserError
from redline.files import explain, replace_file
from redline.jsonl import as_json_value, encode_row
from redline.report.page import Page, build_page
from redline.report.relation import Relation, choose_runs, relate
from redline.report.run_files import RunFiles, load_runs
from redline.report.run_series import joined_rows
from redline.report.run_summary import RunSummary, summarise
from redline.units import number, size

WITH_VALUE = ("--out", "--png", "--episodes")
USUAL_NAMES = {"--out": "report.html", "--episodes": "episodes.jsonl"}
EXAMPLE = "redline report runs/pong/dqn/20260101-120000-s1 --out report.html"
MAX_NAME_CHARS = 60


@dataclass(frozen=True)
class ReportFlags:
    """Make one page of charts and tables from a run; from several, a comparison. The runs are only read."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN…")] = ()
    """Run directories, or folders that hold some."""
    out: Path = Path("report.html")
    """The page to write: one file, which needs nothing else and no network."""
    png: Path | None = None
    """Folder for every chart as a PNG."""
    episodes: Path | None = None
    """JSON Lines to write: every episode with the means of the hardware while it was played."""
    plain: bool = False
    """Plain text, no drawing."""
    json: bool = False
    """Print what was found as one JSON object on stdout, and nothing else there."""


@dataclass(frozen=True)
class Written:
    """What a report left on the disk."""

    out: Path
    num_bytes: int
    pictures: list[Path]
    episodes: int | None


def run(args: Sequence[str]) -> int:
    """Report as the flags say and return the exit code."""
    flags = parse(ReportFlags, runs_first(args), default=ReportFlags(), prog="redline report")
    if not flags.runs:
        raise UserError(f"report needs a run directory or a folder of runs: {EXAMPLE}")
    runs = load_runs(flags.runs)
    check_targets(flags, runs)
    plain = is_plain(plain=flags.plain, as_json=flags.json)
    with progress_bar(f"drawing {len(runs)} run{'s' * (len(runs) > 1)}", plain=plain) as progress:
        summaries = [summarise(found) for found in runs]
        pairs = list(zip(runs, summaries, strict=True))
        relation = None
        if len(runs) > 1:
            compared, left_out = choose_runs(pairs)
            relation = relate([summary for _, summary in compared], left_out)
        page = build_page(pairs, relation, unix_s=time.time(), folder=flags.out.parent, progress=progress)
        written = write(page, runs, flags)
    if flags.json:
        print(json.dumps(to_json(runs, summaries, relation, written)))
    else:
        show(runs, summaries, relation, written, plain=plain)
    return DONE


def runs_first(args: Sequence[str]) -> list[str]:
    """Return the arguments with the runs before the flags, wherever they were typed."""
    runs: list[str] = []
    flags: list[str] = []
    for place, arg in enumerate(args):
        is_value = place > 0 and args[place - 1] in WITH_VALUE
        (flags if is_value or arg.startswith("-") else runs).append(arg)
    return runs + flags


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


def write(page: Page, runs: Sequence[RunFiles], flags: ReportFlags) -> Written:
    """Write everything that was asked for."""
    text = page.html.encode()
    write_file("--out", flags.out, [text])
    num_episodes = None
    if flags.episodes is not None:
        num_episodes = write_episodes(flags.episodes, runs)
    pictures = [] if flags.png is None else write_pictures(flags.png, page)
    return Written(out=flags.out, num_bytes=len(text), pictures=pictures, episodes=num_episodes)


def write_file(flag: str, target: Path, chunks: Iterable[bytes]) -> None:
    """Write a file whole or not at all."""
    try:
        replace_file(target, chunks)
    except OSError as error:
        raise UserError(f"cannot write {explain(error, target)}: use another {flag}") from None


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
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for owner, chart in page.charts:
            path = folder / f"{file_name(owner)}-{file_name(chart.name)}.png"
            if path in paths:  # two runs whose names differ in signs that no file's name should have
                path = path.with_stem(f"{path.stem}-{len(paths)}")
            save_png(chart, path)
            paths.append(path)
    except OSError as error:
        raise UserError(f"cannot write {explain(error, folder)}: use another --png") from None
    return paths


def file_name(name: str) -> str:
    """Return a name that is safe as a file's, whatever a run is called."""
    return re.sub(r"[^a-zA-Z0-9.]+", "-", name).strip("-.")[:MAX_NAME_CHARS] or "chart"


def to_json(
    runs: Sequence[RunFiles], summaries: Sequence[RunSummary], relation: Relation | None, written: Written
) -> dict[str, object]:
    """Return everything as one plain object."""
    return {
        "schema": 1,
        "out": str(written.out),
        "bytes": written.num_bytes,
        "png": [str(path) for path in written.pictures],
        "episodes": written.episodes,
        "runs": [
            {"path": str(found.path), "problems": list(found.problems), **_plain(asdict(summary))}
            for found, summary in zip(runs, summaries, strict=True)
        ],
        "relation": None if relation is None else _plain(asdict(relation)),
    }


def _plain(value: dict[str, object]) -> dict[str, object]:
    found = as_json_value(value)
    assert isinstance(found, dict)  # noqa: S101 - a mapping stays one
    return found


def show(
    runs: Sequence[RunFiles],
    summaries: Sequence[RunSummary],
    relation: Relation | None,
    written: Written,
    *,
    plain: bool,
) -> None:
    """Print a line for each run, what is missing, and where the page is."""
    head = ("run", "algorithm", "env", "steps", "steps/s", "updates/s", "cores", "return, last 100", "evaluation")
    rows = [
        (
            found.label,
            summary.algorithm or "–",
            summary.env or "–",
            "–" if summary.steps is None else f"{summary.steps:,}",
            number(summary.steps_per_s, 1),
            number(summary.updates_per_s, 1),
            number(summary.cpu_cores_used),
            _score(summary.final_return, summary.final_return_episodes),
            _score(summary.evaluation_return, summary.evaluation_episodes),
        )
        for found, summary in zip(runs, summaries, strict=True)
    ]
    print_table(head, rows, plain=plain, numeric=(3, 4, 5, 6, 7, 8))
    for found in runs:
        for problem in found.problems:
            print(f"{found.label}: {problem}")
    for run in relation.left_out if relation is not None else []:
        print(f"{run.label} is not compared: {run.why}")
    if written.episodes is not None:
        print(f"{written.episodes:,} episodes with the means of the hardware meanwhile")
    if written.pictures:
        print(f"{len(written.pictures)} charts in {written.pictures[0].parent}")
    print(f"report of {size(written.num_bytes)}: {written.out}")


def _score(value: float | None, episodes: int) -> str:
    return number(value, 1) if value is None else f"{number(value, 1)} (n = {episodes:,})"
