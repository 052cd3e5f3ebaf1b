"""Hostile use by the thousand: command lines, damaged runs, kills and shortages, each judged by the same oracles.

Cases are numbered and follow from the seed. A campaign goes on from its file of rows. A case that fails is printed as a
command that repeats it.
"""

import signal
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from campaign_crew import Worker, run_cases
from campaign_rows import Row, append_row, as_table, group, in_turn, read_done, summarise, without_paths
from campaign_worker import KEEP
from recording import Measurement, at_least, finish, make_parser, say
from redline.runs.host import commit, usable_cores

GOALS = {"line": 10_000, "damage": 1_000, "kill": 300, "shortage": 100}


def main(argv: Sequence[str] | None = None) -> int:
    """Run cases for some minutes, or one of them, and return the exit code."""
    args = parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="redline-campaign-") as name:
        folder = (args.work or Path(tempfile.mkdtemp(prefix="redline-") if args.only else name)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if args.only:
            return repeat(args, folder)
        rows = run(args, folder)
    kinds = summarise(rows)
    tell(rows, kinds, seed=args.seed)
    return finish(measure(rows, kinds, args), as_json=args.json, keep=not args.no_record)


def run(args: Namespace, folder: Path) -> list[Row]:
    """Run what is not done yet, until the minutes are over or a signal comes; return the rows of all that is done."""
    version = commit()
    rows = read_done(args.rows, seed=args.seed, commit=version)
    done = {(row["kind"], row["index"]) for row in rows}
    cases = (case for case in in_turn({kind: GOALS[kind] for kind in args.kinds}) if case not in done)
    until_s = time.monotonic() + 60.0 * args.minutes
    stopped = threading.Event()

    def stop(*_: object) -> None:
        stopped.set()
        say("stopping after the cases under way")

    def keep(found: Row) -> None:
        row = {"seed": args.seed, "commit": version, **found}
        rows.append(row)
        append_row(args.rows, row)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    workers = [Worker(str(folder), str(args.seed)) for _ in range(args.side_by_side)]
    run_cases(cases, workers, keep=keep, is_over=lambda: stopped.is_set() or time.monotonic() > until_s)
    return rows


def repeat(args: Namespace, folder: Path) -> int:
    """Run some cases, show them and keep their folders; return the exit code."""
    has_faults = False
    with Worker(str(folder), str(args.seed), KEEP) as worker:
        for case in args.only:
            row = worker.run(case)
            has_faults |= bool(row["faults"])
            say(f"{row['case']}\nkept in {row.get('place')}")
            for fault in row["faults"]:
                print(f"{fault['oracle']}: {fault['detail']}")
            if not row["faults"]:
                print(f"skipped: {row['skipped']}" if row.get("skipped") else "no fault")
    return 1 if has_faults else 0


def tell(rows: Sequence[Row], kinds: dict[str, Row], *, seed: int) -> None:
    """Print the table, and the smallest case of each distinct fault as a command that repeats it."""
    for fault in group(rows):
        say(f"\n{fault['kind']}, {fault['oracle']}, {fault['count']} ×: {fault['detail']}")
        say(f"  {fault['case']}")
        say(f"  python benchmarks/campaign.py --seed {seed} --only {fault['kind']}:{fault['index']}")
    for reason in sorted({row["skipped"] for row in rows if row.get("skipped")}):
        say(f"skipped: {reason}")
    say(f"\n{as_table(kinds)}")


def measure(rows: Sequence[Row], kinds: dict[str, Row], args: Namespace) -> Measurement:
    """Return what the campaign found."""
    cases = sum(kind["cases"] for kind in kinds.values())
    failed = sum(kind["failed"] for kind in kinds.values())
    is_whole = all(
        kinds.get(name, {}).get("cases", 0) + kinds.get(name, {}).get("skipped", 0) >= goal
        for name, goal in GOALS.items()
    )
    told = [
        {key: without_paths(str(fault[key])) for key in ("kind", "oracle", "detail", "count", "index")}
        for fault in group(rows)
    ]
    return Measurement(
        name="campaign" if is_whole else "campaign-part",
        title="Fault campaign",
        headline=f"{cases:,} cases, {failed:,} failed",
        learning="resumed runs are compared with undisturbed ones, weight by weight",
        passed=failed == 0,
        config={"seed": args.seed, "minutes": args.minutes, "goals": GOALS},
        repeats=told,
        summary={name: {**kind, "oracles": dict(kind["oracles"])} for name, kind in kinds.items()},
        packages=("hypothesis",),
    )


def parse_args(argv: Sequence[str] | None) -> Namespace:
    """Return the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="no case begins later")
    parser.add_argument("--seed", type=at_least(0), default=1, help="of all cases")
    parser.add_argument(
        "--side-by-side", type=at_least(1), default=2 * usable_cores(), help="cases at a time: most of them also wait"
    )
    parser.add_argument("--kinds", nargs="+", choices=tuple(GOALS), default=list(GOALS), help="which cases to run")
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="JSON Lines of finished cases: added to, and not repeated"
    )
    parser.add_argument(
        "--work", type=Path, metavar="FOLDER", help="where the damaged runs are made, and kept for the next time"
    )
    parser.add_argument(
        "--only", type=as_case, nargs="+", metavar="KIND:INDEX", help="run these cases alone, and keep their folders"
    )
    args = parser.parse_args(argv)
    args.rows = args.rows.resolve() if args.rows else None
    return args


def as_case(text: str) -> tuple[str, int]:
    """Return the kind and number of a case."""
    kind, _, index = text.partition(":")
    if kind not in GOALS or not index.isdecimal():
        raise ValueError(text)
    return kind, int(index)


if __name__ == "__main__":
    sys.exit(main())
