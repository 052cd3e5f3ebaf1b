"""Hostile use by the thousand: command lines, damaged runs, kills and shortages, each judged by the same oracles.

Cases are numbered and follow from the seed. A campaign goes on from its file of rows. A case that fails is printed as a
command that repeats it.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import campaign_damage
import campaign_kills
import campaign_lines
import campaign_shortages
from campaign_oracles import Fault
from campaign_place import Place
from campaign_process import Zygote
from campaign_rows import Row, append_row, as_table, group, in_turn, read_done, summarise, without_paths
from campaign_shortages import ALONE
from campaign_workshop import Workshop
from recording import Measurement, at_least, finish, make_parser, say
from redline.runs.host import commit

SHM = "/dev/shm"  # noqa: S108  a private one is mounted there
SHM_SIZE = "size=512m"


@dataclass(frozen=True)
class Kind:
    """A kind of cases: how many there are, how one is drawn, run and measured."""

    goal: int
    draw: Callable[..., Any]  # (workshop, seed, index) → case
    run: Callable[[Any, Workshop, Place], list[Fault]]
    size: Callable[[Any], int]


KINDS = {
    "line": Kind(
        10_000,
        lambda workshop, *, seed, index: campaign_lines.draw_line(workshop.commands(), seed=seed, index=index),
        campaign_lines.run_line,
        campaign_lines.size_of,
    ),
    "damage": Kind(1_000, campaign_damage.draw_damage, campaign_damage.run_damage, campaign_damage.size_of),
    "kill": Kind(300, campaign_kills.draw_strike, campaign_kills.run_strike, campaign_kills.size_of),
    "shortage": Kind(
        100, campaign_shortages.draw_shortage, campaign_shortages.run_shortage, campaign_shortages.size_of
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run cases for some minutes, or one of them, and return the exit code."""
    args = parse_args(argv)
    stay_alone()
    with tempfile.TemporaryDirectory(prefix="redline-campaign-") as name:
        folder = args.work or Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        campaign = Campaign(args, folder.resolve())
        try:
            if args.only:
                return max([campaign.repeat(*case) for case in args.only])
            campaign.run()
        finally:
            campaign.close()
    kinds = summarise(campaign.rows)
    tell(campaign.rows, kinds, seed=args.seed)
    return finish(measure(campaign.rows, kinds, args), as_json=args.json, keep=not args.no_record)


class Campaign:
    """Cases in turn, and the rows of those that are done."""

    def __init__(self, args: Namespace, folder: Path) -> None:
        self._args = args
        self._cases = Path(tempfile.mkdtemp(prefix="cases-", dir=folder))
        self._mark = uuid.uuid4().hex
        self.workshop = Workshop(Zygote(self._mark), folder)
        self._commit = commit()
        self.rows = read_done(args.rows, seed=args.seed, commit=self._commit)
        self._is_stopped = False

    def close(self) -> None:
        """End what runs, and remove the cases."""
        self.workshop.zygote.__exit__()
        if not self._args.only:
            shutil.rmtree(self._cases, ignore_errors=True)

    def run(self) -> None:
        """Run what is not done yet, until the minutes are over or a signal comes."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        done = {(row["kind"], row["index"]) for row in self.rows}
        until_s = time.monotonic() + 60.0 * self._args.minutes
        for kind, index in in_turn({kind: KINDS[kind].goal for kind in self._args.kinds}):
            if self._is_stopped or time.monotonic() > until_s:
                break
            if (kind, index) not in done:
                row = self._case(kind, index)
                self.rows.append(row)
                append_row(self._args.rows, row)

    def repeat(self, kind: str, index: int) -> int:
        """Run one case, show it and keep its folder."""
        row = self._case(kind, index)
        say(f"{row['case']}")
        say(f"kept in {self._cases}")
        for fault in row["faults"]:
            print(f"{fault['oracle']}: {fault['detail']}")
        if not row["faults"]:
            print(f"skipped: {row['skipped']}" if row.get("skipped") else "no fault")
        return 1 if row["faults"] else 0

    def _case(self, name: str, index: int) -> Row:
        kind, begun_s = KINDS[name], time.monotonic()
        case = kind.draw(self.workshop, seed=self._args.seed, index=index)
        skipped = campaign_shortages.why_skipped(case) if name == "shortage" else None
        place = Place(self._cases / f"{name}-{index}").fill()
        faults: list[Fault] = []
        if skipped is None:
            try:
                faults = kind.run(case, self.workshop, place)
            except Exception as error:  # a fault of the campaign itself must not end it
                say(traceback.format_exc())
                faults = [Fault("campaign", f"{type(error).__name__}: {error}"[:200])]
                self.workshop.zygote.__exit__()
                self.workshop.zygote = Zygote(self._mark)
        if not self._args.only:
            place.remove()
        for fault in faults:
            say(f"{name}:{index} {fault.oracle}: {fault.detail}")
        return {
            **{"kind": name, "index": index, "seed": self._args.seed, "commit": self._commit},
            **{"seconds": time.monotonic() - begun_s, "faults": [fault.row() for fault in faults]},
            **{"case": case.row(), "size": kind.size(case), "skipped": skipped},
        }

    def _stop(self, *_: object) -> None:
        self._is_stopped = True
        say("stopping after this case")


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
        kinds.get(name, {}).get("cases", 0) + kinds.get(name, {}).get("skipped", 0) >= kind.goal
        for name, kind in KINDS.items()
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
        config={"seed": args.seed, "minutes": args.minutes, "goals": {name: kind.goal for name, kind in KINDS.items()}},
        repeats=told,
        summary={name: {**kind, "oracles": dict(kind["oracles"])} for name, kind in kinds.items()},
        packages=("hypothesis",),
    )


def stay_alone() -> None:
    """Begin again with mounts and a /dev/shm of our own, where this user may have them."""
    if os.environ.get(ALONE) == "1":
        subprocess.run(["mount", "-t", "tmpfs", "-o", SHM_SIZE, "tmpfs", SHM], check=True)
        return
    unshare = shutil.which("unshare")
    if os.environ.get(ALONE) == "0" or unshare is None:
        return
    private = [unshare, "--mount", "--propagation", "private"]
    is_able = (
        subprocess.run([*private, "mount", "-t", "tmpfs", "tmpfs", SHM], check=False, capture_output=True).returncode
        == 0
    )
    os.environ[ALONE] = "1" if is_able else "0"
    if is_able:
        os.execv(unshare, [*private, sys.executable, *sys.argv])  # noqa: S606


def parse_args(argv: Sequence[str] | None) -> Namespace:
    """Return the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="no case begins later")
    parser.add_argument("--seed", type=at_least(0), default=1, help="of all cases")
    parser.add_argument("--kinds", nargs="+", choices=tuple(KINDS), default=list(KINDS), help="which cases to run")
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
    if kind not in KINDS or not index.isdecimal():
        raise ValueError(text)
    return kind, int(index)


if __name__ == "__main__":
    sys.exit(main())
